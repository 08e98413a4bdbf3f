"""The map of keys: what it finds, how it grows, and where it ends."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from storage.compaction.offset_map import NOT_FOUND, OffsetMap
from tests.support.turns import finished

LIMIT_BYTES = 1 << 20
MANY = 10_000


def put_at_once(offsets: OffsetMap, key: bytes, offset: int) -> None:
    offsets.put_all([key], [offset])


def put(offsets: OffsetMap, key: bytes, offset: int) -> bool:
    """Whether there was room."""
    if not offsets.has_room(1) and not finished(offsets.grow(1)):
        return False
    put_at_once(offsets, key, offset)
    return True


def drawn_key(draw: random.Random) -> bytes:
    """Of any size, also such as differ by zeros only, as the map fills keys up with zeros."""
    return draw.choice((b"", b"key", b"\x00", b"k" * 40)) + bytes(draw.randrange(4)) + b"%d" % draw.randrange(MANY)


@pytest.mark.parametrize("seed", range(2))
def test_it_finds_what_a_dict_would(seed: int) -> None:
    draw = random.Random(seed)
    offsets, expected = OffsetMap(LIMIT_BYTES), dict[bytes, int]()

    for offset in range(0, 3 * MANY, 10):
        keys = [drawn_key(draw) for _ in range(10)]
        assert offsets.has_room(len(keys)) or finished(offsets.grow(len(keys)))
        offsets.put_all(keys, range(offset, offset + 10))
        expected.update(zip(keys, range(offset, offset + 10), strict=True))
        others = [drawn_key(draw) for _ in range(10)]
        assert offsets.absent(others) == bytes(key not in expected for key in others)

    assert len(offsets) == len(expected)
    assert {key: offsets.find(key) for key in expected} == expected
    assert all(offsets.find(b"other%d" % number) == NOT_FOUND for number in range(MANY))
    assert sorted(offset for some in offsets.latest_offsets() for offset in some) == sorted(expected.values())


@pytest.mark.parametrize("size", [14, 15, 16, 17, 31, 32, 33])
def test_keys_that_stand_as_themselves_and_digests_are_not_mixed_up(size: int) -> None:
    offsets = OffsetMap(0)
    keys = [b"k" * size, b"k" * (size - 1), b"k" * (size - 1) + b"\x00", b"k" * (size - 1) + b"\xff"]
    finished(offsets.grow(len(keys)))

    for offset, key in enumerate(keys):
        put_at_once(offsets, key, offset)

    assert [offsets.find(key) for key in keys] == [0, 1, 2, 3]


def test_a_key_is_not_found_across_two_others() -> None:
    """Keys stand side by side, and a search looks at every byte."""
    offsets = OffsetMap(0)
    finished(offsets.grow(3))
    entry = b"\x00" * 14 + b"\x01"
    for offset, key in enumerate((b"\x00" * 15, b"", b"\x00")):
        put_at_once(offsets, key, offset)

    assert offsets.find(entry) == NOT_FOUND
    assert [offsets.find(key) for key in (b"\x00" * 15, b"", b"\x00")] == [0, 1, 2]


def test_it_is_full_at_its_limit_and_keeps_what_it_has() -> None:
    offsets = OffsetMap(LIMIT_BYTES)
    count = 0
    while put(offsets, b"key%d" % count, count):
        count += 1

    assert LIMIT_BYTES / 25 * 0.75 < count < LIMIT_BYTES / 25
    assert offsets.share == pytest.approx(1.0, abs=0.01)
    assert all(offsets.find(b"key%d" % number) == number for number in range(count))
    assert not offsets.has_room(1)
    put_at_once(offsets, b"key7", count)  # no new key: it needs no room
    assert offsets.find(b"key7") == count


def test_the_first_batch_fits_whatever_the_limit() -> None:
    """Else a compaction would never get past it."""
    offsets = OffsetMap(100)

    assert not offsets.has_room(MANY)
    assert finished(offsets.grow(MANY))
    for number in range(MANY):
        put_at_once(offsets, b"key%d" % number, number)

    assert all(offsets.find(b"key%d" % number) == number for number in range(MANY))
    assert not finished(offsets.grow(MANY))


@pytest.mark.long("traces memory")
def test_memory_is_bounded_by_the_limit_while_it_grows() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        offsets = OffsetMap(LIMIT_BYTES)
        count = 0
        while put(offsets, b"a longer key %d" % count, count):
            count += 1
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak - before < 1.15 * LIMIT_BYTES / 0.9
    assert (after - before) / count < 32
