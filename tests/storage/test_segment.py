"""LogSegment below the log: positions by index, scan and memory, loading, limits on open files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from config.topic import LogConfig
from storage.errors import StorageError
from storage.log_segments import OPEN_CLOSED_SEGMENTS
from storage.recent_batches import RECENT_BATCHES
from storage.segment import LogSegment
from tests.storage.conftest import NOW_MS, OpenLog, append, batch, read_offsets


def new_segment(directory: Path, base_offset: int = 0, **config: int) -> LogSegment:
    return LogSegment.create(directory, base_offset, replace(LogConfig(), **config), NOW_MS)  # type: ignore[arg-type]


def add(segment: LogSegment, offset: int, *, timestamp: int = NOW_MS, size: int = 100) -> None:
    data = batch(base_offset=offset, timestamp=timestamp, size=size)
    segment.note_batch(segment.write(data), len(data), offset, timestamp)


def reopen(segment: LogSegment, directory: Path) -> LogSegment:
    return LogSegment.open(directory, segment.base_offset, LogConfig(), NOW_MS, size_bytes=segment.log_path.stat().st_size)


def test_positions_from_memory_and_from_the_file_agree(directory: Path) -> None:
    segment = new_segment(directory)
    for offset in range(3 * RECENT_BATCHES):
        add(segment, offset, size=offset % 300)
    segment.indexes.write_out()
    closed = reopen(segment, directory)

    positions = [segment.find_position(offset) for offset in range(3 * RECENT_BATCHES + 1)]

    assert positions == [closed.find_position(offset) for offset in range(3 * RECENT_BATCHES + 1)]
    assert positions == sorted(set(positions))


def test_positions_are_found_after_the_recent_ones_were_forgotten(directory: Path) -> None:
    segment = new_segment(directory)
    for offset in range(10):
        add(segment, offset)
    before = [segment.find_position(offset) for offset in range(10)]

    segment.recent_batches.forget()
    assert [segment.find_position(offset) for offset in range(10)] == before
    end = segment.size_bytes
    add(segment, 10)

    assert [segment.find_position(offset) for offset in range(11)] == [*before, end]


def test_position_of_an_offset_in_a_gap_is_the_next_batch(directory: Path) -> None:
    segment = new_segment(directory)
    add(segment, 5)
    end_of_first = segment.size_bytes
    add(segment, 50)

    assert [segment.find_position(offset) for offset in (0, 5, 6, 50)] == [0, 0, end_of_first, end_of_first]


def test_activate_finds_the_end_and_appends_go_on(directory: Path) -> None:
    segment = new_segment(directory)
    for offset in range(100):
        add(segment, offset)
    segment.indexes.write_out()
    reopened = reopen(segment, directory)

    end_offset = reopened.activate()
    add(reopened, end_offset)

    assert end_offset == 100
    assert reopened.find_position(100) == segment.size_bytes


def test_largest_timestamp_of_a_closed_segment_is_read_from_its_time_index(directory: Path) -> None:
    segment = new_segment(directory)
    for offset, timestamp in enumerate((NOW_MS, NOW_MS + 9, NOW_MS + 3)):
        add(segment, offset, timestamp=timestamp)
    segment.become_inactive()

    assert tuple(reopen(segment, directory).largest_timestamp_entry()) == (NOW_MS + 9, 1)


def test_malformed_batch_on_disk_is_a_storage_error(directory: Path) -> None:
    segment = new_segment(directory)
    add(segment, 0)
    os.pwrite(segment.fd, (3).to_bytes(4), 8)

    with pytest.raises(StorageError):
        list(segment.iterate_batches())


def test_slice_larger_than_the_scan_chunk_ends_at_a_boundary(directory: Path) -> None:
    segment = new_segment(directory)
    for offset in range(20):
        add(segment, offset, size=30_000)
    segment.indexes.write_out()
    closed = reopen(segment, directory)

    piece = closed.slice(0, closed.size_bytes, 100_000, minimum_one_batch=True)

    assert piece is not None
    assert len(piece) == closed.find_position(3)


def test_few_closed_segments_stay_open(open_log: OpenLog) -> None:
    """A consumer that catches up must not use up the process's descriptors."""
    log = open_log(segment_bytes=500)
    for _ in range(60):
        append(log)

    for offset in range(60):
        assert read_offsets(log, offset, minimum_one_batch=True)

    assert len(log.segments) > OPEN_CLOSED_SEGMENTS + 1
    assert sum(segment.is_loaded for segment in log.segments) <= OPEN_CLOSED_SEGMENTS + 1


def test_time_index_of_a_closed_segment_ends_with_its_largest_timestamp(directory: Path) -> None:
    segment = new_segment(directory)
    add(segment, 0, timestamp=NOW_MS + 7)

    segment.become_inactive()

    assert segment.indexes.time_index.path.read_bytes() == (NOW_MS + 7).to_bytes(8) + (0).to_bytes(4)
