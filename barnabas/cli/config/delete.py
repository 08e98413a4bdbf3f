"""Delete settings of a topic, a broker, its loggers, a group or client metrics: what counts for all others counts again."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.config.resources import DELETE, LOGGER, Change, add_kind, alter, describe, is_own, kind_of
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError
from barnabas.cli.output import Output, confirm
from barnabas.cli.settings import resolve_for_change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kind(parser)
    parser.add_argument("name", metavar="NAME", help="of a broker its number, or default")
    parser.add_argument("keys", nargs="*", metavar="KEY")
    parser.add_argument("--all", action="store_true", help="all that were set for it")
    arguments.add_change(parser, asks=True)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    if bool(options.keys) == options.all:
        raise NotUnderstoodError("say what: KEY, or --all")
    kind = kind_of(options)
    if options.all and kind == LOGGER:
        raise NotUnderstoodError("a broker does not say which levels were set: name the loggers")
    with Connection(settings) as connection:
        (own,) = describe(connection, kind, [options.name]).values()
        values = {each["name"]: each["value"] for each in own if is_own(kind, each)}
        keys = list(values) if options.all else options.keys
        plan = [f"delete {key}={values[key]} of {kind} {options.name}" if key in values else f"{key} is not set" for key in keys]
        if not confirm(plan, dry_run=options.dry_run, yes=options.yes):
            return DONE
        alter(connection, kind, options.name, [Change(key, DELETE) for key in keys], dry_run=False)
    Output("table").line(f"{kind} {options.name}: {', '.join(keys) or 'nothing'} deleted")
    return DONE
