"""List ACLs: all, or those that the options ask for."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.acl.rules import COLUMNS, PATTERNS, add_rule, filters, find
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE
from barnabas.cli.output import Output
from barnabas.cli.settings import resolve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_rule(parser, PATTERNS)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    asked = filters(options)
    with Connection(resolve(options)) as connection:
        found = find(connection, asked)
    Output(options.output).rows([rule.to_data() for rule in found], COLUMNS)
    return DONE
