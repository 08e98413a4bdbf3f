"""Show the features of a cluster, such as metadata.version: their level, and those that its brokers support."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster.feature_levels import feature_facts
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE
from barnabas.cli.output import Column, Output
from barnabas.cli.settings import resolve

COLUMNS = (
    Column("feature", "FEATURE"),
    Column("level", "LEVEL", is_number=True),
    Column("release", "RELEASE"),
    Column("min_level", "LOWEST", is_number=True),
    Column("max_level", "HIGHEST", is_number=True),
    Column("max_release", "HIGHEST RELEASE", is_wide=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--node", type=int, metavar="ID", help="ask this broker (any)")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    with Connection(resolve(options)) as connection:
        facts = feature_facts(connection, options.node)
    Output(options.output).rows(facts, COLUMNS)
    return DONE
