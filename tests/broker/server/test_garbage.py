"""The collector's schedule: cycles among new objects go within seconds, and what lives is not looked at again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from broker.server.garbage import COLLECT_INTERVAL_MS, THRESHOLDS, GarbageCollection
from tests.support.clock import ManualClock


class Node:
    """One that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


class Process:
    """The collection and its clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.collection = GarbageCollection(self.clock)
        self.collection.start()


@pytest.fixture
def process() -> Iterator[Process]:
    before, was_enabled = gc.get_threshold(), gc.isenabled()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
    gc.collect(0)  # so that a test's own objects alone reach a threshold
    process = Process()
    yield process
    process.collection.stop()
    gc.unfreeze()
    gc.set_threshold(*before)
    if not was_enabled:
        gc.disable()


def test_a_cycle_of_new_objects_is_gone_within_the_interval(process: Process) -> None:
    garbage = weakref.ref(Node())

    process.clock.advance(COLLECT_INTERVAL_MS)

    assert garbage() is None


def test_what_lives_is_not_looked_at_again(process: Process) -> None:
    many = [[number] for number in range(THRESHOLDS[0] // 2)]
    frozen_before = gc.get_freeze_count()

    process.clock.advance(COLLECT_INTERVAL_MS)

    assert gc.get_freeze_count() - frozen_before >= len(many)


def test_nothing_is_collected_after_the_stop(process: Process) -> None:
    process.collection.stop()
    frozen = gc.get_freeze_count()

    process.clock.advance(10 * COLLECT_INTERVAL_MS)

    assert gc.get_freeze_count() == frozen
    assert process.clock.pending_timers == []


def test_pythons_own_collections_look_at_little_at_once(process: Process) -> None:
    """The middle generation held 50,000 objects when its turn came: up to 13 ms while clients made many groups."""
    looked_at: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looked_at.append(sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(12 * THRESHOLDS[0])]
    finally:
        gc.callbacks.remove(note)

    assert len(kept) and looked_at
    assert max(looked_at) <= 2.5 * THRESHOLDS[0]
