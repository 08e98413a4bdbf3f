"""Show a cluster: id, controller, brokers, and how many topics and partitions it has."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster.facts import cluster_facts
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE
from barnabas.cli.output import Column, Output
from barnabas.cli.settings import resolve

BROKERS = (
    Column("id", "BROKER", is_number=True),
    Column("host", "HOST"),
    Column("port", "PORT", is_number=True),
    Column("rack", "RACK"),
    Column("leaders", "LEADERS", is_number=True),
    Column("replicas", "REPLICAS", is_number=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    with Connection(resolve(options)) as connection:
        facts = cluster_facts(connection)
    output = Output(options.output)
    if output.is_data:
        output.data(facts)
        return DONE
    output.line(
        f"cluster {facts['cluster_id']}: {len(facts['brokers'])} brokers, {facts['topics']} topics, {facts['partitions']} partitions"
    )
    output.table(facts["brokers"], BROKERS)
    return DONE
