"""OffsetIndex and TimeIndex: Kafka's bytes, lookups, truncation, and what an unclean stop leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.index import UNWRITTEN_LIMIT, CorruptIndexError, OffsetIndex, TimeEntry, TimeIndex

BASE_OFFSET = 1000
INDEX_BYTES = 4096


@pytest.fixture
def offset_index(tmp_path: Path) -> OffsetIndex:
    index = OffsetIndex(tmp_path / "00000000000000001000.index", BASE_OFFSET, INDEX_BYTES)
    index.create()
    return index


@pytest.fixture
def time_index(tmp_path: Path) -> TimeIndex:
    index = TimeIndex(tmp_path / "00000000000000001000.timeindex", BASE_OFFSET, INDEX_BYTES)
    index.create()
    return index


def test_offset_index_file_holds_relative_offset_and_position(offset_index: OffsetIndex) -> None:
    offset_index.append(1007, 5000)
    offset_index.append(1020, 9999)

    offset_index.write_out()

    assert offset_index.path.read_bytes() == bytes.fromhex("00000007 00001388 00000014 0000270f")


def test_time_index_file_holds_timestamp_and_relative_offset(time_index: TimeIndex) -> None:
    time_index.maybe_append(1_700_000_000_000, 1007)

    time_index.write_out()

    assert time_index.path.read_bytes() == (1_700_000_000_000).to_bytes(8) + (7).to_bytes(4)


@pytest.mark.parametrize("is_active", [True, False])
def test_find_position_returns_the_last_entry_at_or_before_the_offset(offset_index: OffsetIndex, is_active: bool) -> None:
    for offset, position in ((1010, 4100), (1020, 8200), (1030, 12300)):
        offset_index.append(offset, position)
    offset_index.unload()
    offset_index.load(is_active=is_active)

    found = [offset_index.find_position(offset) for offset in (1000, 1009, 1010, 1019, 1020, 1030, 5000)]

    assert found == [0, 0, 4100, 4100, 8200, 12300, 12300]


def test_find_boundary_returns_the_last_position_at_or_before_a_position(offset_index: OffsetIndex) -> None:
    offset_index.append(1010, 4100)
    offset_index.append(1020, 8200)

    assert [offset_index.find_boundary(position) for position in (0, 4099, 4100, 8199, 9000)] == [0, 0, 4100, 4100, 8200]


def test_entries_are_written_in_groups(offset_index: OffsetIndex) -> None:
    for entry in range(1, UNWRITTEN_LIMIT):
        offset_index.append(BASE_OFFSET + entry, entry * 5000)
    size_before = offset_index.path.stat().st_size

    offset_index.append(BASE_OFFSET + UNWRITTEN_LIMIT, UNWRITTEN_LIMIT * 5000)

    assert size_before == 0
    assert offset_index.path.stat().st_size == UNWRITTEN_LIMIT * 8


def test_offset_index_truncate_to_drops_the_offset_itself_in_memory_and_on_disk(offset_index: OffsetIndex) -> None:
    for offset, position in ((1010, 4100), (1020, 8200), (1030, 12300)):
        offset_index.append(offset, position)
    offset_index.write_out()

    offset_index.truncate_to(1020)

    assert offset_index.entries_count == 1
    assert offset_index.path.stat().st_size == 8


def test_append_after_truncate_continues_the_file(offset_index: OffsetIndex) -> None:
    offset_index.append(1010, 4100)
    offset_index.append(1020, 8200)
    offset_index.write_out()
    offset_index.truncate_to(1015)

    offset_index.append(1016, 8300)
    offset_index.unload()
    offset_index.load(is_active=False)

    assert [offset_index.find_position(offset) for offset in (1015, 1016)] == [4100, 8300]


def test_time_index_skips_a_timestamp_that_does_not_rise(time_index: TimeIndex) -> None:
    time_index.maybe_append(100, 1001)
    time_index.maybe_append(100, 1002)
    time_index.maybe_append(90, 1003)

    assert time_index.entries_count == 1
    assert time_index.last_entry == TimeEntry(100, 1001)


def test_time_index_find_entry_returns_the_last_at_or_before_the_timestamp(time_index: TimeIndex) -> None:
    time_index.maybe_append(100, 1001)
    time_index.maybe_append(200, 1005)

    found = [time_index.find_entry(timestamp) for timestamp in (99, 100, 199, 200, 300)]

    assert [entry.offset for entry in found] == [BASE_OFFSET, 1001, 1001, 1005, 1005]


def test_time_index_truncate_to_drops_entries_from_the_offset_on(time_index: TimeIndex) -> None:
    time_index.maybe_append(100, 1001)
    time_index.maybe_append(200, 1005)

    time_index.truncate_to(1005)

    assert time_index.last_entry == TimeEntry(100, 1001)


def test_time_index_keeps_one_slot_for_the_closing_entry(tmp_path: Path) -> None:
    index = TimeIndex(tmp_path / "x.timeindex", 0, 24)
    index.create()

    index.maybe_append(1, 1)

    assert index.entries_count == index.entries_max


@pytest.mark.parametrize("content", [b"\0" * 7, b"\0" * 80, bytes.fromhex("00000007 00001388") + b"\0" * 80])
def test_zero_tails_and_torn_files_are_corrupt(offset_index: OffsetIndex, content: bytes) -> None:
    """An unclean stop of Kafka leaves its index preallocated: entries and then zeros."""
    offset_index.path.write_bytes(content)

    with pytest.raises(CorruptIndexError):
        offset_index.load(is_active=True)
        offset_index.check(log_size_bytes=10_000)


def test_entries_past_the_data_are_corrupt(offset_index: OffsetIndex) -> None:
    offset_index.append(1007, 5000)

    with pytest.raises(CorruptIndexError):
        offset_index.check(log_size_bytes=5000)


def test_zero_tail_of_a_time_index_is_corrupt(time_index: TimeIndex) -> None:
    time_index.path.write_bytes((100).to_bytes(8) + (7).to_bytes(4) + b"\0" * 24)
    time_index.load(is_active=True)

    with pytest.raises(CorruptIndexError):
        time_index.check()


def test_missing_file_is_corrupt(offset_index: OffsetIndex) -> None:
    offset_index.path.unlink()

    with pytest.raises(CorruptIndexError):
        offset_index.load(is_active=False)
