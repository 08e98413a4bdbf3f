"""Determines the part of a log that may be compacted, its dirty ratio, and the plan of the compaction (LogCleanerManager, LogToClean).

These decisions run on the loop. They read only segments' facts in memory; with min.compaction.lag.ms or max.compaction.lag.ms also a
timestamp of each dirty segment.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import NamedTuple

from config.topic import LONG_MAX
from storage.compaction.plan import CleanedSegment, CompactionPlan, LastRecord, SourceSegment
from storage.disk import Disk
from storage.files import CLEANED_SUFFIX
from storage.log import Log
from storage.segment import LogSegment

logger = logging.getLogger("barnabas.storage")


class CleanableLog(NamedTuple):
    """The compactable part of a log: [first_dirty_offset, end_offset) is dirty and may be compacted; it may be empty. `end_offset` is a
    segment's base offset. `overdue_ms` is the time since max.compaction.lag.ms was exceeded."""

    log: Log
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is to be compacted now."""
        is_dirty = self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio
        return self.cleanable_bytes > 0 and (is_dirty or self.overdue_ms > 0)


def find_cleanable(log: Log, now_ms: int) -> CleanableLog:
    """Returns the part of the log that may be compacted. OSError or StorageError when a timestamp cannot be read.

    Only durable records supersede others: otherwise a power cut could take the newer record of a key after the older one was removed.
    Closed segments are made durable when the log rolls, so this is rarely less than Kafka cleans, which does not check this."""
    first_dirty = _first_dirty_offset(log)
    uncleanable = min(log.last_stable_offset, log.segments.active.base_offset, log.durable_end_offset)
    dirty = [segment for segment in log.segments.from_index(log.segments.floor_index(first_dirty)) if not segment.is_active]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = next((each.base_offset for each in dirty if _largest_timestamp(log, each) > now_ms - lag_ms), uncleanable)
        uncleanable = min(uncleanable, young)
    uncleanable = max(first_dirty, uncleanable)
    end_offset = log.segments.at(log.segments.floor_index(uncleanable)).base_offset
    clean_bytes = cleanable_bytes = 0
    first_cleanable = log.segments.at(log.segments.floor_index(min(first_dirty, end_offset))).base_offset
    for segment in log.segments:
        if segment.base_offset < first_dirty:
            clean_bytes += segment.size_bytes
        if first_cleanable <= segment.base_offset < end_offset:
            cleanable_bytes += segment.size_bytes
    return CleanableLog(log, first_dirty, end_offset, clean_bytes, cleanable_bytes, _overdue_ms(log, dirty, now_ms))


def make_plan(cleanable: CleanableLog, *, now_ms: int, map_limit_bytes: float, read_bytes: int, disk: Disk) -> CompactionPlan:
    """The plan of compacting it as it is now."""
    log, end_offset = cleanable.log, cleanable.end_offset
    segments = [segment for segment in log.segments if segment.base_offset < end_offset]
    return CompactionPlan(
        directory=log.directory,
        config=log.config,
        segments=tuple(SourceSegment(segment.base_offset, segment.size_bytes) for segment in segments),
        later_segments=tuple(segment.base_offset for segment in log.segments if segment.base_offset >= end_offset),
        first_dirty_offset=cleanable.first_dirty_offset,
        end_offset=end_offset,
        truncations_count=log.truncations_count,
        producers=_last_records(log),
        now_ms=now_ms,
        map_limit_bytes=map_limit_bytes,
        read_bytes=read_bytes,
        disk=disk,
    )


def swap_in(log: Log, plan: CompactionPlan, cleaned: CleanedSegment, now_ms: int) -> bool:
    """Put a segment in `.cleaned` files into the log. If the log has changed since the plan was made (it was truncated, moved, or lacks
    some of the old segments), the files are deleted and False is returned. StorageError when the disk fails."""
    new = LogSegment.open(
        plan.directory, cleaned.base_offset, plan.config, plan.now_ms, size_bytes=cleaned.size_bytes, disk=plan.disk, suffix=CLEANED_SUFFIX
    )
    old = [segment for segment in log.segments if segment.base_offset in cleaned.replaced]
    is_as_it_was = (
        log.directory == plan.directory
        and _file_size(new, plan.disk) == cleaned.size_bytes  # the compacting process may have withdrawn it
        and log.truncations_count == plan.truncations_count
        and [segment.base_offset for segment in old] == list(cleaned.replaced)
    )
    if not is_as_it_was:
        new.delete()
        return False
    return log.replace_segments(old, [new], now_ms)


def _file_size(segment: LogSegment, disk: Disk) -> int | None:
    with suppress(FileNotFoundError):
        return disk.stat(segment.log_path).st_size
    return None


def _first_dirty_offset(log: Log) -> int:
    """Returns the end of the clean part. An impossible checkpoint is ignored."""
    clean_end = log.clean_end_offset
    if clean_end is None:
        return log.log_start_offset
    if log.log_start_offset <= clean_end <= log.log_end_offset:
        return clean_end
    if clean_end > log.log_end_offset or not log.config.is_deleted:
        logger.warning(
            "the cleaner checkpoint %d of %s is outside [%d, %d]: all of the log counts as dirty",
            clean_end, log.directory, log.log_start_offset, log.log_end_offset,
        )  # fmt: skip
    log.clean_end_offset = log.log_start_offset
    return log.log_start_offset


def _overdue_ms(log: Log, dirty: list[LogSegment], now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms == LONG_MAX:
        return 0
    timestamps = [timestamp for timestamp in (_first_timestamp(log, segment) for segment in dirty) if timestamp > 0]
    return max(now_ms - lag_ms - min(timestamps), 0) if timestamps else 0


def _first_timestamp(log: Log, segment: LogSegment) -> int:
    timestamp = next((header.max_timestamp for _, header in segment.iterate_batches()), 0)
    log.segments.note_read(segment)
    return timestamp


def _largest_timestamp(log: Log, segment: LogSegment) -> int:
    timestamp = segment.largest_timestamp()
    log.segments.note_read(segment)
    return timestamp


def _last_records(log: Log) -> dict[int, LastRecord]:
    return {
        producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else None, entry.producer_epoch)
        for producer_id, entry in log.producers.producers.items()
    }
