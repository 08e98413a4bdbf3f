"""Show the metadata quorum: its leader, voters and observers, and how far each of them is."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster.quorum_facts import quorum_facts
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE
from barnabas.cli.output import Column, Output
from barnabas.cli.settings import resolve
from barnabas.cli.times import to_text

COLUMNS = (
    Column("id", "NODE", is_number=True),
    Column("role", "ROLE"),
    Column("log_end_offset", "LOG END", is_number=True),
    Column("lag", "LAG", is_number=True),
    Column("last_caught_up", "CAUGHT UP", to_text),
    Column("directory_id", "DIRECTORY ID", is_wide=True),
    Column("endpoints", "ENDPOINTS", is_wide=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    with Connection(resolve(options)) as connection:
        facts = quorum_facts(connection)
    output = Output(options.output)
    if output.is_data:
        output.data(facts)
        return DONE
    output.line(f"leader {facts['leader_id']} in epoch {facts['leader_epoch']}, high watermark {facts['high_watermark']}")
    output.table(facts["replicas"], COLUMNS)
    return DONE
