"""List resources of a kind with the settings that were set for them."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.config.resources import add_kind, describe, is_own, kind_of, names_of
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE
from barnabas.cli.output import Column, Output
from barnabas.cli.settings import resolve

COLUMNS = (
    Column("name", "NAME"),
    Column("settings", "SETTINGS", lambda settings: ", ".join(f"{key}={value}" for key, value in settings.items()) or "-"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kind(parser)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    kind = kind_of(options)
    with Connection(resolve(options)) as connection:
        described = describe(connection, kind, names_of(connection, kind))
    rows = [
        {"name": name, "settings": {each["name"]: each["value"] for each in settings if is_own(kind, each)}}
        for name, settings in sorted(described.items())
    ]
    Output(options.output).rows(rows, COLUMNS)
    return DONE
