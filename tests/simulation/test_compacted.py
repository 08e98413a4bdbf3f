"""What the check of a compacted topic takes for an anomaly."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from tests.simulation import compacted
from tests.simulation.compacted import CompactedTopic, Sent
from tests.simulation.history import History, Key
from tests.support.history_checker import Position

PLACE = (compacted.TOPIC, 0)


class Reader:
    """In place of a KeyedReader: finds `reads`, one after the other, in partition 0, in the leader epochs given with them."""

    def __init__(self, reads: list[tuple[int, list[Position]]]) -> None:
        self._reads = reads
        self._epoch = -1
        self.begun_in: dict[Key, int] = {}

    async def read_all(self, keys: Iterable[Key]) -> dict[Key, list[Position]]:
        self._epoch, found = self._reads.pop(0)
        self.begun_in = dict.fromkeys(keys, self._epoch)
        return {key: found if key == PLACE else [] for key in keys}

    def leader_epoch_of(self, _key: Key) -> int:
        return self._epoch

    def close(self) -> None:
        pass


async def check(monkeypatch: pytest.MonkeyPatch, *reads: tuple[int, list[Position]]) -> dict[str, list[Any]]:
    monkeypatch.setattr(compacted, "MORE_COMPACTION_S", 0)
    topic = CompactedTopic(random.Random(1), History(), is_replicated=True)
    topic.sent = {identity: Sent(PLACE, b"key", is_tombstone=False) for identity in ("old", "new")}
    await topic.check(lambda *_arguments, **_more: Reader(list(reads)), [])
    return topic.findings


async def test_a_record_that_is_back_under_the_same_leader_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await check(monkeypatch, (0, [(5, "new")]), (0, [(3, "old"), (5, "new")]))
    assert found == {"compacted changed-by-compaction": [(PLACE, [(3, "old")])]}


async def test_another_leader_may_have_compacted_less(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await check(monkeypatch, (0, [(5, "new")]), (1, [(3, "old"), (5, "new")])) == {}


async def test_another_leader_has_the_same_last_values(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await check(monkeypatch, (0, [(3, "old"), (5, "new")]), (1, [(3, "old")]))
    assert list(found) == ["compacted changed-by-compaction"]
