"""Whose configuration kafka-configs is about: --entity-type with --entity-name or --entity-default, or one option of a kind."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from barnabas.cli.errors import CommandError

TYPES = ("topics", "clients", "users", "brokers", "ips", "client-metrics", "groups", "broker-loggers")
OPTIONS = {
    "topic": "topics", "client": "clients", "user": "users", "broker": "brokers", "broker-logger": "broker-loggers", "ip": "ips",
    "client-metrics": "client-metrics", "group": "groups",
}  # fmt: skip
DEFAULTS = {"client-defaults": "clients", "user-defaults": "users", "broker-defaults": "brokers", "ip-defaults": "ips"}
DEFAULT = ""
"""The name of the default of all."""
BY_NUMBER = frozenset({"brokers", "broker-loggers"})
WITH_DEFAULT = frozenset(DEFAULTS.values())


class Entities(NamedTuple):
    """One type, or users and clients. `names` are as many as `types`, or fewer where --describe is of all."""

    types: tuple[str, ...]
    names: tuple[str, ...]


def add_entities(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--entity-type", action="append", default=[], metavar="TYPE", help=", ".join(TYPES))
    # Names and defaults belong to the types in the order in which they stand.
    add("--entity-name", action="append", dest="names", default=[], metavar="NAME")
    add("--entity-default", action="append_const", dest="names", const=DEFAULT)
    for option, kind in OPTIONS.items():
        add(f"--{option}", dest=f"of_{option}", metavar="NAME", help=f"--entity-type {kind} --entity-name NAME")
    for option, kind in DEFAULTS.items():
        add(f"--{option}", dest=f"of_{option}", action="store_true", help=f"--entity-type {kind} --entity-default")


def entities_of(options: argparse.Namespace) -> Entities:
    """Raises CommandError, in the words of ConfigCommandOptions.checkArgs."""
    given = vars(options)
    short = [(kind, given[f"of_{option}"]) for option, kind in OPTIONS.items() if given[f"of_{option}"] is not None]
    short += [(kind, DEFAULT) for option, kind in DEFAULTS.items() if given[f"of_{option}"]]
    if short and (options.entity_type or options.names):
        raise CommandError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    types = tuple(options.entity_type) or tuple(kind for kind, _ in short)
    names = tuple(options.names) or tuple(name for _, name in short)
    if unknown := [kind for kind in types if kind not in TYPES]:
        raise CommandError(f"Invalid entity type {unknown[0]}, the entity type must be one of {', '.join(TYPES)}")
    if not types:
        raise CommandError("At least one entity type must be specified")
    if len({*types}) < len(types):
        raise CommandError(f"Duplicate entity type(s) specified: {','.join(types)}")
    if len(types) > 1 and {*types} != {"users", "clients"}:
        raise CommandError("Only 'users' and 'clients' entity types may be specified together")
    if len(names) > len(types):
        raise CommandError("More entity names specified than entity types")
    if DEFAULT in names and not WITH_DEFAULT.issuperset(types):
        raise CommandError(f"{','.join(types)} have no default")
    if BY_NUMBER.intersection(types) and names and names[0] != DEFAULT and not names[0].isdecimal():
        raise CommandError(f"The entity name for {types[0]} must be a valid integer broker id, but it is: {names[0]}")
    return Entities(types, names)
