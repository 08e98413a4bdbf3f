"""Describe the settings of a resource: value, who set it, the default, and, with --output wide or --documentation, what it means."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.config.resources import add_kind, describe, kind_of
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, RefusedError
from barnabas.cli.output import Column, Output
from barnabas.cli.settings import resolve

DOCUMENTATION = Column("documentation", "DOCUMENTATION")
COLUMNS = (
    Column("name", "SETTING"),
    Column("value", "VALUE"),
    Column("source", "SET BY"),
    Column("default", "DEFAULT"),
    Column("is_read_only", "READ-ONLY", is_wide=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kind(parser)
    parser.add_argument("name", metavar="NAME", help="of a broker its number, or default")
    parser.add_argument("keys", nargs="*", metavar="KEY", help="only these settings (all)")
    parser.add_argument("-c", "--changed", action="store_true", help="only settings that are not the default")
    parser.add_argument("--documentation", action="store_true", help="also what they mean")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    kind = kind_of(options)
    shows_documentation = options.documentation or options.output in ("wide", "json", "yaml")
    with Connection(resolve(options)) as connection:
        (settings,) = describe(connection, kind, [options.name], documentation=shows_documentation).values()
    if unknown := set(options.keys) - {each["name"] for each in settings}:
        raise RefusedError(f"{kind} {options.name} has no setting {', '.join(sorted(unknown))}")
    rows = [
        each
        for each in settings
        if (not options.keys or each["name"] in options.keys) and not (options.changed and each["source"] == "default")
    ]
    Output(options.output).rows(rows, (*COLUMNS, *([DOCUMENTATION] if shows_documentation else ())))
    return DONE
