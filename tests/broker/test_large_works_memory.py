"""Where the small objects of large works come from. Python's own count of blocks tells those of its own allocator."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from broker.garbage import LARGE_WORK_MS, CollectionPause
from broker.large_works_memory import LargeWorksMemory
from tests.support.clock import ManualClock

OBJECTS = 50_000


@pytest.fixture
def memory() -> Iterator[LargeWorksMemory]:
    made = LargeWorksMemory()
    if not made.is_possible:
        pytest.skip("another allocator, or hooks, are in place")
    yield made
    made.end()


def test_objects_made_meanwhile_take_nothing_of_pythons_allocator(memory: LargeWorksMemory) -> None:
    before = sys.getallocatedblocks()

    memory.begin()
    objects = [[number] for number in range(OBJECTS)]
    memory.end()

    assert sys.getallocatedblocks() - before < OBJECTS // 10
    assert objects[-1] == [OBJECTS - 1]


def test_objects_may_live_grow_and_be_freed_on_either_side(memory: LargeWorksMemory) -> None:
    usual = [bytearray(b"a" * 20) for _ in range(OBJECTS)]
    memory.begin()
    large = [bytearray(b"b" * 20) for _ in range(OBJECTS)]
    for each in usual:
        each += b"a" * 30
    del usual[::2]
    memory.end()
    for each in large:
        each += b"b" * 30
    del large[::2]

    assert all(each == b"a" * 50 for each in usual)
    assert all(each == b"b" * 50 for each in large)


def test_it_lasts_from_the_first_work_in_pieces_to_the_last(memory: LargeWorksMemory) -> None:
    pause = CollectionPause()
    pause.memory = memory
    seen = []

    for work, is_busy in (("a", True), ("b", True), ("a", False), ("b", False)):
        pause.note(work, is_busy)
        seen.append(memory.is_used)

    assert seen == [True, True, True, False]


def test_a_work_that_is_not_finished_goes_on_in_it(memory: LargeWorksMemory) -> None:
    pause = CollectionPause()
    pause.note("a", True)

    pause.use(memory)

    assert memory.is_used
    pause.note("a", False)
    assert not memory.is_used


def test_it_is_not_used_before_there_is_a_work(memory: LargeWorksMemory) -> None:
    CollectionPause().use(memory)

    assert not memory.is_used


def test_memory_is_sought_while_works_last_until_it_is_being_made() -> None:
    clock = ManualClock()
    pause = CollectionPause()
    pause.clock = clock
    found: list[int] = []
    begun_ms = clock.monotonic_ms()

    def seek_memory() -> bool:
        found.append(clock.monotonic_ms() - begun_ms)
        return len(found) == 3

    pause.seek_memory = seek_memory
    for length_ms in (0, LARGE_WORK_MS - 1, LARGE_WORK_MS, 5 * LARGE_WORK_MS):
        pause.note("a", True)
        clock.advance(length_ms)
        pause.note("a", False)

    first_ms = 2 * LARGE_WORK_MS - 1
    assert found == [first_ms, first_ms + LARGE_WORK_MS, first_ms + 2 * LARGE_WORK_MS]


def test_who_has_hooked_in_meanwhile_keeps_its_place(memory: LargeWorksMemory) -> None:
    import tracemalloc

    memory.begin()
    tracemalloc.start()
    try:
        memory.end()
        kept = [object()]
        assert tracemalloc.get_object_traceback(kept[0]) is not None
        assert not LargeWorksMemory().is_possible
    finally:
        tracemalloc.stop()
    assert memory.is_used
