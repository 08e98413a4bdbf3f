"""What the group commands ask about groups and their members."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from barnabas.cli.cluster_facts import Partition
from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError, NotUnderstoodError, RefusedError

DEAD = "DEAD"
MOVING = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")
"""What brokers answer while a coordinator begins. librdkafka gives that as the result, Kafka's AdminClient asks again."""
RETRY_S = 0.1
NAMES_MAX = 5
"""Of members in a line; the others are counted."""


def describe_groups(connection: Connection, groups: Iterable[str]) -> dict[str, Any]:
    """Each group as librdkafka describes it, or a CommandError. A group that is not there is in the state DEAD, or an error."""
    names, described = list(dict.fromkeys(groups)), dict[str, Any]()
    deadline_s = time.monotonic() + connection.timeout_s
    while names:
        described |= connection.attempts(connection.admin.describe_consumer_groups(names, request_timeout=connection.timeout_s))
        names = [name for name in names if isinstance(described[name], CommandError) and str(described[name]).startswith(MOVING)]
        if time.monotonic() > deadline_s:
            break
        if names:
            time.sleep(RETRY_S)
    return described


def get_groups(connection: Connection, groups: Iterable[str]) -> dict[str, Any]:
    """As `describe_groups`. Raises RefusedError if one is not there, or may not be described."""
    described = describe_groups(connection, groups)
    for name, group in described.items():
        if isinstance(group, CommandError) and not is_missing(group):
            raise group
        if is_missing(group):
            raise RefusedError(f"there is no group {name}; barnabas group list has those that are there")
    return described


def is_missing(group: Any) -> bool:
    """Brokers answer GROUP_ID_NOT_FOUND, or, up to version 5 of DescribeGroups, a dead group without members."""
    if isinstance(group, CommandError):
        return str(group).startswith("GROUP_ID_NOT_FOUND")
    return group.state is not None and group.state.name == DEAD


def type_of(group: Any) -> str:
    return str(group.type.name.lower())


def members_in_words(group: Any) -> str:
    """The names of some members, for a refusal."""
    names = [f"{member.client_id} ({member.host.lstrip('/')})" for member in group.members]
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def refuse_members(name: str, group: Any, what: str) -> None:
    """Raises RefusedError if the group has members."""
    if not isinstance(group, CommandError) and group.members:
        raise RefusedError(
            f"group {name} has members: {members_in_words(group)}; {what} only without: stop them, or barnabas group remove-member"
        )


def parse_topics(words: Iterable[str]) -> dict[str, list[int] | None]:
    """`TOPIC` or `TOPIC:0,1`, as in kafka-consumer-groups; None for all partitions. Raises NotUnderstoodError."""
    topics: dict[str, list[int] | None] = {}
    for word in words:
        name, colon, numbers = word.partition(":")
        try:
            topics[name] = [int(number) for number in numbers.split(",")] if colon else None
        except ValueError as e:
            raise NotUnderstoodError(f"{word!r}: it is TOPIC, or TOPIC:0,1 for some partitions") from e
    return topics


def within(partition: Partition, topics: dict[str, list[int] | None]) -> bool:
    """Whether it is one of the chosen; no topics choose all."""
    name, index = partition
    if not topics:
        return True
    indexes = topics.get(name, [])
    return indexes is None or index in indexes
