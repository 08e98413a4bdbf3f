"""Whose quota: users, client ids and addresses, by name or the default of all without one (KIP-546)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.cli.connection import Connection
from barnabas.cli.errors import NotUnderstoodError, check
from protocol.client_quotas import MatchType
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""By the option's name, as the wire has them."""
KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate")
DEFAULT = "(default)"

Entity = dict[str, str | None]
"""The name by kind; None is the default."""


def add_entity(parser: argparse.ArgumentParser) -> None:
    """Options of rpk and kafka-configs."""
    group = parser.add_argument_group("whose")
    for option, kind in KINDS.items():
        group.add_argument(f"--{kind}", metavar="NAME")
        group.add_argument(f"--{kind}-default", dest=f"{option}_default", action="store_true", help="of all without one of their own")


def entity_of(options: argparse.Namespace) -> Entity:
    """Raises NotUnderstoodError."""
    entity: Entity = {}
    for option, kind in KINDS.items():
        name, is_default = getattr(options, option), getattr(options, f"{option}_default")
        if name is not None and is_default:
            raise NotUnderstoodError(f"--{kind} and --{kind}-default are two things")
        if name is not None or is_default:
            entity[kind] = name
    return entity


def named(entity: Entity) -> str:
    return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity.items())


def find(connection: Connection, entity: Entity, *, strict: bool, any_of: Iterable[str] = ()) -> list[tuple[Entity, dict[str, float]]]:
    """The quotas of entities with these parts, and with `strict` no others. Parts of the kinds `any_of` may have any name, or be the
    default. Raises RefusedError."""
    components = [
        ComponentData(entity_type=kind, match_type=MatchType.DEFAULT if name is None else MatchType.EXACT, match=name)
        for kind, name in entity.items()
    ]
    components += [ComponentData(entity_type=kind, match_type=MatchType.SPECIFIED, match=None) for kind in any_of]
    answer = connection.wire().request(DescribeClientQuotasRequest(components=components, strict=strict))
    check(answer.error_code, answer.error_message)
    found = [
        ({part.entity_type: part.entity_name for part in entry.entity}, {each.key: each.value for each in entry.values})
        for entry in answer.entries or ()
    ]
    return sorted(found, key=lambda each: named(each[0]))


def alter(connection: Connection, entity: Entity, changes: Iterable[tuple[str, float | None]], *, dry_run: bool) -> None:
    """`None` removes a quota. Raises RefusedError."""
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    ops = [OpData(key=key, value=0.0 if value is None else value, remove=value is None) for key, value in changes]
    answer = connection.wire().request(AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=ops)], validate_only=dry_run))
    for entry in answer.entries:
        check(entry.error_code, entry.error_message)


def in_words(quotas: Mapping[str, float]) -> str:
    """Whole numbers without a point, and none with an exponent."""
    return ", ".join(f"{key}={int(value) if value.is_integer() else value}" for key, value in quotas.items())


def to_row(entity: Entity, values: dict[str, Any]) -> dict[str, Any]:
    return {"entity": dict(sorted(entity.items())), "quotas": dict(sorted(values.items()))}
