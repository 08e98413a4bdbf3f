"""Lower features of a cluster, to a release or to levels; level 0 disables one. With --unsafe metadata may be lost."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster.feature_levels import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, add_levels, change
from barnabas.cli.settings import resolve_for_change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_levels(parser)
    parser.add_argument("--unsafe", action="store_true", help="also where metadata is lost that the lower level does not know")
    arguments.add_change(parser, asks=True)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    return change(resolve_for_change(options), options, UNSAFE_DOWNGRADE if options.unsafe else SAFE_DOWNGRADE)
