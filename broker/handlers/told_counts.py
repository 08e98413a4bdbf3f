"""How much a node may tell of itself in one request: what is longer is refused before it is looked at, since that takes long."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ErrorCode, KafkaError

TOLD_MAX = 1_000
"""Listeners, features, log directories: a node has a few of each. Kafka has no limit."""


def check_told(**lists: Sequence[object]) -> None:
    """Raises KafkaError INVALID_REQUEST for a list that is longer than any node's."""
    for name, found in lists.items():
        check_told_count(name, len(found))


def check_told_count(name: str, count: int, most: int = TOLD_MAX) -> None:
    if count > most:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{count} {name.replace('_', ' ')} in one request are too many.")
