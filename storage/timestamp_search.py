"""Offsets by record timestamp, over all segments of a log (UnifiedLog.fetchOffsetByTimestamp). Called by Log only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.records import iterate_records
from storage.log_segments import LogSegments
from storage.segment import LogSegment


class TimestampOffset(NamedTuple):
    """The first record at or after a timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


def find_offset_by_timestamp(segments: LogSegments, timestamp: int, *, start_offset: int, end_offset: int) -> TimestampOffset | None:
    """The first record in [start_offset, end_offset) with this timestamp or a later one.

    As in Kafka, only the first segment with a late enough timestamp is searched."""
    for segment in segments:
        is_young_enough = segment.largest_timestamp() >= timestamp
        segments.note_read(segment)
        if is_young_enough:
            with _refusing_malformed_records():
                found = _search(segment, timestamp, start_offset)
            return found if found is not None and found.offset < end_offset else None
    return None


def find_max_timestamp(segments: LogSegments) -> TimestampOffset | None:
    """Returns the first record with the log's largest timestamp, which is -1 if no record has one; None for an empty log."""
    best, best_entry = None, None
    for segment in segments:
        entry = segment.largest_timestamp_entry()
        segments.note_read(segment)
        if best_entry is None or entry.timestamp > best_entry.timestamp:
            best, best_entry = segment, entry
    if best is None or best_entry is None:
        return None
    with _refusing_malformed_records():
        for position, header in best.iterate_batches(best.find_position(best_entry.offset)):
            if header.max_timestamp == best_entry.timestamp:
                for record in iterate_records(best.read_batch(position, header.size_bytes)):
                    if record.timestamp == best_entry.timestamp:
                        return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def _search(segment: LogSegment, timestamp: int, start_offset: int) -> TimestampOffset | None:
    for position, header in segment.iterate_batches(segment.find_position_by_timestamp(timestamp, start_offset)):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        for record in iterate_records(segment.read_batch(position, header.size_bytes)):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


@contextmanager
def _refusing_malformed_records() -> Iterator[None]:
    """A producer can append malformed records under a valid checksum: a search among them fails with CORRUPT_MESSAGE."""
    try:
        yield
    except DecodeError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the records cannot be searched: {error}") from error
