"""List quotas of users, client ids and addresses: all, or those with the parts that are given."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE
from barnabas.cli.output import Column, Output
from barnabas.cli.quota.entities import add_entity, entity_of, find, in_words, named, to_row
from barnabas.cli.settings import resolve

COLUMNS = (
    Column("entity", "ENTITY", named),
    Column("quotas", "QUOTAS", in_words),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_entity(parser)
    parser.add_argument("--strict", action="store_true", help="not those that have other parts too")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    entity = entity_of(options)
    with Connection(resolve(options)) as connection:
        found = find(connection, entity, strict=options.strict)
    Output(options.output).rows([to_row(*each) for each in found], COLUMNS)
    return DONE
