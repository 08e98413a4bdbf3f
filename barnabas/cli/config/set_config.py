"""Set settings of a topic, a broker, its loggers, a group or client metrics, while the brokers run."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.config.resources import APPEND, SET, SUBTRACT, Change, add_kind, alter, kind_of
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError
from barnabas.cli.output import Output
from barnabas.cli.settings import resolve_for_change
from barnabas.cli.topic.configs import parse_configs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_kind(parser)
    add("name", metavar="NAME", help="of a broker its number, or default for all")
    add("settings", nargs="*", metavar="KEY=VALUE")
    add("--append", action="append", default=[], metavar="KEY=VALUE", help="add to a list")
    add("--subtract", action="append", default=[], metavar="KEY=VALUE", help="take from a list")
    arguments.add_change(parser)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    changes = [
        Change(key, operation, value)
        for operation, words in ((SET, options.settings), (APPEND, options.append), (SUBTRACT, options.subtract))
        for key, value in parse_configs(words).items()
    ]
    if not changes:
        raise NotUnderstoodError("nothing to set: KEY=VALUE")
    kind = kind_of(options)
    with Connection(settings) as connection:
        alter(connection, kind, options.name, changes, dry_run=options.dry_run)
    done = "can be set" if options.dry_run else "set"
    Output("table").line(f"{kind} {options.name}: {', '.join(change.name for change in changes)} {done}")
    return DONE
