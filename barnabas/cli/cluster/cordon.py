"""Cordon log directories of a broker: they get no new partitions, while those in them stay and are served (cordoned.log.dirs, KIP-1066)."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster.cordoned import add_directories, change
from barnabas.cli.settings import resolve_for_change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_directories(parser)
    arguments.add_change(parser)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    return change(resolve_for_change(options), options, is_cordoned=True)
