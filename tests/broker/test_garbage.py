"""The collector's schedule: cycles among new objects go within seconds, those among old ones when nobody is served, all go at last."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from broker.garbage import (
    BUSY_INTERVAL_MAX_MS,
    BUSY_OBJECTS_MAX,
    COLLECT_INTERVAL_MS,
    DEEP_INTERVAL_MAX_MS,
    DEEP_INTERVAL_MS,
    IDLE_MS,
    THRESHOLDS,
    TICK_MS,
    CollectionPause,
    GarbageCollection,
)
from tests.support.clock import ManualClock


class Node:
    """One that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


class Process:
    """The collection, its clock, and whether a client is being served."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.idle_ms = 0
        self.collection = GarbageCollection(self.clock, lambda: self.idle_ms)
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


def test_collection_waits_while_large_requests_go_in_turns_but_not_for_ever(process: Process) -> None:
    garbage = weakref.ref(Node())

    pause = CollectionPause()
    pause.note("work", True)
    try:
        process.clock.advance(BUSY_INTERVAL_MAX_MS - TICK_MS)
        assert garbage() is not None
        process.clock.advance(TICK_MS)
        assert garbage() is None
    finally:
        pause.note("work", False)

    assert gc.isenabled()


def test_what_is_new_after_a_long_pause_is_frozen_unseen_when_it_is_much(process: Process) -> None:
    """Minutes of making topics in one go had left so much that a collection took 360 ms."""
    pause = CollectionPause()
    pause.note("work", True)
    try:
        garbage = weakref.ref(Node())
        many = [[number] for number in range(2 * BUSY_OBJECTS_MAX)]
        frozen_before = gc.get_freeze_count()

        process.clock.advance(BUSY_INTERVAL_MAX_MS)

        assert garbage() is not None, "it was looked at"
        assert gc.get_freeze_count() - frozen_before >= len(many)
    finally:
        pause.note("work", False)


def test_the_collector_pauses_until_the_last_of_several_works_ends(process: Process) -> None:
    pause = CollectionPause()
    enabled: list[bool] = []

    for work, is_busy in (("a", True), ("b", True), ("a", False), ("a", False), ("b", False), ("never begun", False)):
        pause.note(work, is_busy)
        enabled.append(gc.isenabled())

    assert enabled == [False, False, False, False, True, True]


def test_what_large_requests_leave_is_not_looked_at_when_they_end(process: Process) -> None:
    pause = CollectionPause()
    pause.note("work", True)
    left = [[number] for number in range(2 * THRESHOLDS[0])]
    frozen_before = gc.get_freeze_count()

    pause.note("work", False)

    assert gc.get_freeze_count() - frozen_before >= len(left)


def test_many_new_objects_are_looked_at_at_the_next_tick_and_never_again(process: Process) -> None:
    many = [[number] for number in range(3 * THRESHOLDS[0])]
    assert gc.get_count()[2] > 0
    frozen_before = gc.get_freeze_count()

    process.clock.advance(TICK_MS)

    assert gc.get_freeze_count() - frozen_before >= len(many)


@pytest.mark.parametrize(("idle_ms", "interval_ms"), [(IDLE_MS, DEEP_INTERVAL_MS), (0, DEEP_INTERVAL_MAX_MS)])
def test_a_cycle_that_was_frozen_while_it_lived_goes_in_idle_time_or_at_last(process: Process, idle_ms: int, interval_ms: int) -> None:
    node: Node | None = Node()
    garbage = weakref.ref(node)
    process.clock.advance(COLLECT_INTERVAL_MS)
    node = None
    process.idle_ms = idle_ms

    process.clock.advance(interval_ms - COLLECT_INTERVAL_MS - 1)
    assert garbage() is not None
    process.clock.advance(TICK_MS)

    assert garbage() is None


def test_nothing_is_collected_after_the_stop(process: Process) -> None:
    process.collection.stop()
    frozen = gc.get_freeze_count()

    process.clock.advance(DEEP_INTERVAL_MAX_MS)

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
