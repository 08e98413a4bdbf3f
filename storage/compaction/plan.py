"""The arguments and results of a compaction: values that are sent between the broker and the process that compacts.

A plan names closed segments of one log. The compacting process only reads these and writes `.cleaned` files. The broker puts the new files
into the log if the log still has the segments of which they were made.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from config.topic import LogConfig
from storage.disk import Disk

STEP_RECORDS = 512  # about as many are read between two steps of a compaction, which take less than a millisecond


class SourceSegment(NamedTuple):
    """A closed segment."""

    base_offset: int
    size_bytes: int


class LastRecord(NamedTuple):
    """The batch of an active producer that must stay: its last one, by its last offset; or its last marker, if it has no batch any more."""

    last_data_offset: int | None
    producer_epoch: int


class CompactionPlan(NamedTuple):
    """The closed segments below `end_offset`, a segment's base offset, up to which the log may be cleaned. Below `first_dirty_offset`
    each key occurs once since the last compaction. `later_segments` are the base offsets of the other segments, whose transaction
    indexes may have a transaction that began earlier. `truncations_count` is the log's count when the plan was made."""

    directory: Path
    config: LogConfig
    segments: tuple[SourceSegment, ...]
    later_segments: tuple[int, ...]
    first_dirty_offset: int
    end_offset: int
    truncations_count: int
    producers: dict[int, LastRecord]
    now_ms: int
    map_limit_bytes: float
    read_bytes: int
    disk: Disk


class CleanedSegment(NamedTuple):
    """A new segment in durable `.cleaned` files, and the base offsets of the segments that it replaces."""

    base_offset: int
    size_bytes: int
    replaced: tuple[int, ...]


class CompactionStats(NamedTuple):
    """As CleanerStats; `map_share` is how full the map was, 1.0 at its limit."""

    read_bytes: int
    read_records: int
    written_bytes: int
    written_records: int
    map_read_bytes: int
    map_share: float
    keyless_records: int


class CompactionResult(NamedTuple):
    """Below `clean_end_offset` each key occurs once."""

    cleaned: tuple[CleanedSegment, ...]
    clean_end_offset: int
    stats: CompactionStats
