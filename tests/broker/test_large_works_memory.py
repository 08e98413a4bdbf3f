"""Where the small objects of large works come from. Python's own count of blocks tells those of its own allocator."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from broker.garbage import CollectionPause
from broker.large_works_memory import LargeWorksMemory

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


def test_its_place_is_found_when_the_first_work_begins() -> None:
    pause = CollectionPause()
    found: list[str] = []
    pause.on_first_work = lambda: found.append("found")

    for is_busy in (True, False, True, False):
        pause.note("a", is_busy)

    assert found == ["found"]


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
