"""List the clusters that are known by name; the current one is marked."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.contexts import read_contexts
from barnabas.cli.errors import DONE
from barnabas.cli.output import Column, Output

COLUMNS = (
    Column("name", "CONTEXT"),
    Column("is_current", "CURRENT"),
    Column("bootstrap_servers", "BOOTSTRAP SERVERS"),
    Column("read_only", "READ-ONLY"),
    Column("command_config", "COMMAND CONFIG", is_wide=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_output(parser, "-o")


def run(options: argparse.Namespace) -> int:
    contexts = read_contexts()
    rows = [{"name": name, "is_current": name == contexts.current, **each.to_data()} for name, each in contexts.by_name.items()]
    Output(options.output).rows(rows, COLUMNS)
    return DONE
