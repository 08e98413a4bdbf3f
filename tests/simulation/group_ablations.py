"""Safeguards of KIP-848 groups that can be switched off, one at a time, as in tests/simulation/ablations.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from broker.coordination.shard import Shard
from broker.groups.consumer.member import NO_PARTITIONS
from broker.groups.consumer.migration import Migration
from broker.groups.consumer.reconciliation import Reconciliation


@contextmanager
def give_what_others_have_yet_to_give_up() -> Iterator[None]:
    with patch.object(Reconciliation, "_is_free", lambda self, topic_id, partition: True):
        yield


@contextmanager
def load_no_tombstones() -> Iterator[None]:
    """What was ended before a crash is there after it."""
    replay_stored = Shard._replay_stored

    def replay_values(self: Shard[Any], key: bytes | None, value: bytes | None, offset: int, producer_id: int) -> None:
        if value is not None:
            replay_stored(self, key, value, offset, producer_id)

    with patch.object(Shard, "_replay_stored", replay_values):
        yield


@contextmanager
def convert_without_assignments() -> Iterator[None]:
    """When a classic group becomes a KIP-848 group, its members count as having nothing: others are given what they hold."""
    with patch.object(Migration, "_partitions_of", lambda self, classic, member: NO_PARTITIONS):
        yield


GROUP_ABLATIONS = {each.__name__: each for each in (give_what_others_have_yet_to_give_up, load_no_tombstones, convert_without_assignments)}

GROUP_BROKEN_BY = {
    "give_what_others_have_yet_to_give_up": frozenset({"double-owner"}),
    "load_no_tombstones": frozenset({"replay-differs"}),
    "convert_without_assignments": frozenset({"zombie-commit", "zombie-member"}),
}
