"""What is asked of a compaction and what comes of it: values that travel between the broker and the process that compacts.

A plan names closed segments of one log. Whoever carries it out reads these and writes `.cleaned` files, nothing else; the broker puts
them into the log, if the log still has the segments that they were made from.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from config.topic import LogConfig
from storage.disk import Disk


class SourceSegment(NamedTuple):
    """A closed segment."""

    base_offset: int
    size_bytes: int


class LastRecord(NamedTuple):
    """What must stay of an active producer: its last batch, by its last offset, or where all is gone, its last marker."""

    last_data_offset: int | None
    producer_epoch: int


class CompactionPlan(NamedTuple):
    """All closed segments below `end_offset`, a segment's base offset, up to which the log may be cleaned. `first_dirty_offset`: below
    it each key was there once, after the last compaction. `later_segments`: the base offsets of the rest, whose transaction indexes may
    name a transaction that began before. `truncations_count`: of the log, when the plan was made."""

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
    """A segment that stands as `.cleaned` files, durable, and the base offsets of those that it was made from."""

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
    """`clean_end_offset`: below it, each key is there once."""

    cleaned: tuple[CleanedSegment, ...]
    clean_end_offset: int
    stats: CompactionStats
