"""Show a context, by default the current one. Passwords are in the file that it names, and not shown."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.client_properties import SECRETS
from barnabas.cli.contexts import TABLES, read_contexts
from barnabas.cli.errors import DONE, RefusedError
from barnabas.cli.output import Output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="", metavar="NAME")
    arguments.add_output(parser, "-o")


def run(options: argparse.Namespace) -> int:
    contexts = read_contexts()
    name = options.name or contexts.current
    if not name:
        raise RefusedError("no context is chosen; barnabas context use NAME chooses one")
    shown = {"name": name, "is_current": name == contexts.current, **contexts.get(name).to_data()}
    shown["properties"] = {key: "(hidden)" if key in SECRETS else value for key, value in shown["properties"].items()}
    output = Output(options.output)
    if output.is_data:
        output.data(shown)
    else:
        pairs = [(table, f"{key}={value}") for table in TABLES for key, value in shown.pop(table).items()]
        for key, value in (*shown.items(), *pairs):
            output.line(f"{key:18}{value}")
    return DONE
