"""Raise features of a cluster, to a release or to levels. All brokers and controllers have to support them."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster.feature_levels import UPGRADE, add_levels, change
from barnabas.cli.settings import resolve_for_change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_levels(parser)
    arguments.add_change(parser, asks=True)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    return change(resolve_for_change(options), options, UPGRADE)
