"""Odd but legal requests about client quotas. See odd_requests.py."""

from __future__ import annotations

import math

from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.peers.odd_request import Row

Parts = tuple[tuple[str, str | None], ...]

USER: Parts = (("user", "u"),)
BOTH: Parts = (("user", "u"), ("client-id", None))
ADDRESS: Parts = (("ip", "10.0.0.1"),)


def entry(parts: Parts, *changes: tuple[str, float | None]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[OpData(key=key, value=0.0 if value is None else value, remove=value is None) for key, value in changes],
    )


def altering(*entries: EntryData, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def describing(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    asked = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    return DescribeClientQuotasRequest(components=asked, strict=strict)


QUOTAS: list[Row] = [
    *((f"alter v{version}", altering(entry(USER, ("producer_byte_rate", 1000.0 + version))), version) for version in (0, 1)),
    ("alter several", altering(entry(BOTH, ("request_percentage", 12.5)), entry(ADDRESS, ("connection_creation_rate", 7.0))), 1),
    ("alter defaults", altering(*(entry(((kind, None),), ("x", None)) for kind in ("user", "client-id", "ip"))), 1),
    ("alter nothing", altering(), 1),
    ("alter without changes", altering(entry(USER)), 1),
    ("validate", altering(entry(USER, ("consumer_byte_rate", 5.0)), entry(USER[:0]), validate_only=True), 1),
    *(
        (f"alter {key} to {value}", altering(entry(USER, (key, value))), 1)
        for key, value in (
            ("unknown", 1.0),
            ("", 1.0),
            ("connection_creation_rate", 1.0),
            ("producer_byte_rate", 0.0),
            ("producer_byte_rate", -1.0),
            ("producer_byte_rate", 1.5),
            ("producer_byte_rate", 1000.0000001),
            ("producer_byte_rate", 1e19),
            ("producer_byte_rate", math.inf),
            ("request_percentage", 1e300),
            ("controller_mutation_rate", 0.001),
            ("unknown", None),
            ("consumer_byte_rate", math.nan),
            ("consumer_byte_rate", None),
        )
    ),
    *(
        (f"alter {parts}", altering(entry(parts, ("producer_byte_rate", 10.0))), 1)
        for parts in (
            (("", "a"),),
            (("group", "a"),),
            (("user", ""),),
            (("client-id", ""),),
            (("ip", ""),),
            (("user", "a"), ("group", "g")),
            (("user", "a"), ("user", "b")),
            ADDRESS,
        )
    ),
    ("address with a user", altering(entry((*ADDRESS, *USER), ("producer_byte_rate", 10.0))), 1),
    ("address that is a name", altering(entry((("ip", "nowhere.invalid"),), ("connection_creation_rate", 10.0))), 1),
    ("alter an address to too many", altering(entry(ADDRESS, ("connection_creation_rate", 2.0**31))), 1),
    ("alter a key twice", altering(entry(USER, ("producer_byte_rate", 10.0), ("producer_byte_rate", 20.0))), 1),
    ("alter an entity twice", altering(entry(USER, ("consumer_byte_rate", None)), entry(USER, ("producer_byte_rate", 20.0))), 1),
    *((f"describe all v{version}", describing(), version) for version in (0, 1)),
    ("describe none", describing(strict=True), 1),
    *(
        (f"describe {kind} {how} {name} strict {strict}", describing((kind, how, name), strict=strict), 1)
        for kind, how, name in (("user", 0, "u"), ("user", 1, None), ("user", 2, None), ("client-id", 1, None), ("ip", 2, None))
        for strict in (False, True)
    ),
    ("describe both", describing(("client-id", 2, None), ("user", 0, "u"), strict=True), 1),
    *(
        (f"describe {components}", describing(*components), 1)
        for components in (
            (("", 0, "u"),),
            (("group", 0, "u"),),
            (("user", 3, None),),
            (("user", -1, None),),
            (("user", 0, None),),
            (("user", 1, "u"),),
            (("user", 2, "u"),),
            (("user", 2, None), ("user", 0, "u")),
            (("user", 2, None), ("ip", 2, None)),
            (("group", 3, None), ("user", 9, None)),
        )
    ),
    ("remove all", altering(entry(USER, ("producer_byte_rate", None)), entry(BOTH, ("request_percentage", None))), 1),
    ("describe what is left", describing(), 1),
]
