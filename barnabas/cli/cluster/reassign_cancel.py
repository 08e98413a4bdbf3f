"""End the moves of replicas that are in progress: the replicas are those from before."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import get_topics
from barnabas.cli.connection import Connection
from barnabas.cli.output import Output
from barnabas.cli.reassignment.cancel import cancel
from barnabas.cli.settings import resolve_for_change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="only of these (all)")
    arguments.add_change(parser, asks=True)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    with Connection(settings) as connection:
        get_topics(connection, options.topics)
        return cancel(connection, options, Output(options.output))
