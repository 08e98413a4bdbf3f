"""Set quotas of a user, a client id or an address: bytes or requests a second, or percent of a core."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError
from barnabas.cli.output import Output
from barnabas.cli.quota.entities import KEYS, add_entity, alter, entity_of, named
from barnabas.cli.settings import resolve_for_change
from barnabas.cli.topic.configs import parse_configs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_entity(parser)
    parser.add_argument("quotas", nargs="+", metavar="KEY=NUMBER", help=", ".join(KEYS))
    arguments.add_change(parser)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    entity = entity_of(options)
    if not entity:
        raise NotUnderstoodError("say whose: --user, --client-id or --ip, or --user-default …")
    try:
        changes = [(key, float(value)) for key, value in parse_configs(options.quotas).items()]
    except ValueError as e:
        raise NotUnderstoodError(f"a quota is a number: {e}") from e
    with Connection(settings) as connection:
        alter(connection, entity, changes, dry_run=options.dry_run)
    Output("table").line(f"{named(entity)}: {', '.join(key for key, _ in changes)} {'can be set' if options.dry_run else 'set'}")
    return DONE
