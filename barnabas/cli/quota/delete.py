"""Delete quotas of a user, a client id or an address: the default counts again, if there is one."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError, RefusedError
from barnabas.cli.output import Output, confirm
from barnabas.cli.quota.entities import KEYS, add_entity, alter, entity_of, find, in_words, named
from barnabas.cli.settings import resolve_for_change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_entity(parser)
    parser.add_argument("keys", nargs="*", metavar="KEY", help=f"of {', '.join(KEYS)} (all)")
    arguments.add_change(parser, asks=True)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    entity = entity_of(options)
    if not entity:
        raise NotUnderstoodError("say whose: --user, --client-id or --ip, or --user-default …")
    with Connection(settings) as connection:
        found = find(connection, entity, strict=True)
        own = found[0][1] if found else {}
        keys = [key for key in own if not options.keys or key in options.keys]
        if not keys:
            raise RefusedError(f"{named(entity)} has no such quota; barnabas quota list has those that are there")
        plan = [f"delete {in_words({key: own[key]})} of {named(entity)}" for key in keys]
        if not confirm(plan, dry_run=options.dry_run, yes=options.yes):
            return DONE
        alter(connection, entity, [(key, None) for key in keys], dry_run=False)
    Output("table").line(f"{named(entity)}: {', '.join(keys)} deleted")
    return DONE
