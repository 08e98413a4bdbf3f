"""The segments of one log on disk (Kafka's LocalLog): rolling, truncation, replacement, deletion and flushing.

Invariants: the last segment is the active one; every batch below `recovery_point` is durable. Producers, epochs, watermarks and the log's
end belong to Log, its only owner. Every method raises StorageError when the disk fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

from config.topic import LogConfig
from storage.disk import Disk
from storage.errors import storage_errors
from storage.files import CLEANED_SUFFIX, SWAP_SUFFIX
from storage.flush import FlushState, FlushWork
from storage.log_segments import LogSegments
from storage.retention import DelayedDeletions
from storage.segment import LogSegment


class LocalLog:
    """See the module's docstring. `mark_snapshot(base_offset)` renames the producers' snapshot of a segment that is removed, and
    returns its new path if there is one."""

    __slots__ = ("_disk", "_mark_snapshot", "_random_below", "config", "deletions", "directory", "flushes", "recovery_point", "segments")

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        segments: LogSegments,
        *,
        recovery_point: int,
        random_below: Callable[[int], int],
        mark_snapshot: Callable[[int], Path | None],
        disk: Disk,
    ) -> None:
        self.directory = directory
        self.config = config
        self.segments = segments
        self.recovery_point = recovery_point
        self.deletions = DelayedDeletions(disk)
        self.flushes = FlushState()
        self._disk = disk
        self._random_below = random_below
        self._mark_snapshot = mark_snapshot
        self.flushes.note_closed(segment for segment in segments if segment.is_recovered and not segment.is_active)
        segments.active.roll_jitter_ms = self._draw_jitter_ms()

    # -- segments --------------------------------------------------------------------------------------------------

    def roll(self, base_offset: int, now_ms: int) -> bool:
        """Start a new active segment at `base_offset` and ask for a flush of the old one. Returns False if the active one is empty and
        begins there."""
        old = self.segments.active
        if old.base_offset == base_offset:
            return False
        with storage_errors("roll", self.directory):
            old.check_in_place()
            new = self._new_segment(base_offset, now_ms)
            old.become_inactive()
        self.segments.add(new)
        self.segments.note_read(old)
        self.flushes.note_closed([old])
        return True

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Remove the batch that contains `offset`, which must be in a segment, and everything after it. Returns the new end of the log."""
        with storage_errors("truncate", self.directory):
            segments = self.segments
            self._remove(segments.remove_from(segments.floor_index(offset) + 1), now_ms)
            active = segments.active
            if not active.is_active:
                self.flushes.forget([active])
                active.activate()
            return active.truncate_to(offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Remove every segment and begin with an empty one."""
        with storage_errors("truncate", self.directory):
            self._remove(self.segments.remove_from(0), now_ms)
            active = self._new_segment(offset, now_ms)
        self.segments.add(active)

    def note_truncated(self, end_offset: int) -> None:
        """Record that the log ends at `end_offset` now: flushes in flight must not move the recovery point."""
        self.flushes.note_truncation()
        self.recovery_point = min(self.recovery_point, end_offset)

    def remove_first(self, count: int, now_ms: int) -> None:
        """Take the oldest segments out of the log. Their files wait in `deletions` for file.delete.delay.ms."""
        with storage_errors("delete segments of", self.directory):
            self._remove(self.segments.remove_first(count), now_ms)

    def replace_segments(self, old: list[LogSegment], new: list[LogSegment], now_ms: int) -> bool:
        """Put the segments `new` in the place of `old`, closed segments that follow each other (LocalLog.replaceSegments).

        `new` have CLEANED_SUFFIX, contain only offsets of `old`, and are durable already. Returns whether they are in the log. If not,
        because the log was truncated or lost some of `old` meanwhile, their files are deleted. After a kill at any point the next start
        finds all of `new` or all of `old` (storage/swap.py):
        1. `new` become .swap files, the last first. Until the first of them did, a .cleaned file undoes it all.
        2. `old` become .deleted files. From here on the .swap files win over what is left of them.
        3. `new` lose their suffix."""
        assert old and new, "compaction leaves at least one batch of what it compacts"
        assert all(a.base_offset < b.base_offset for a, b in pairwise(new)), "the new segments are in order"
        with storage_errors("replace segments of", self.directory):
            index = self.segments.find_run(old)
            if index is None or old[-1].is_active:
                for segment in new:
                    segment.delete()
                return False
            for segment in reversed(new):
                segment.unload()
                segment.change_suffix(CLEANED_SUFFIX, SWAP_SUFFIX)
            self.segments.replace(index, len(old), new)
            kept_offsets = {segment.base_offset for segment in new}
            self._remove(old, now_ms, kept_offsets)
            for segment in new:
                segment.change_suffix(SWAP_SUFFIX, "")
        return True

    def note_renamed(self, directory: Path) -> None:
        """The directory has another name; the segments' own paths are the caller's."""
        self.directory = directory
        self.deletions.note_renamed(directory)
        self.flushes.note_renamed(directory)

    def abandon(self) -> None:
        """Free every descriptor without writing."""
        self.segments.abandon()

    # -- flushing --------------------------------------------------------------------------------------------------

    def has_unflushed(self, end_offset: int) -> bool:
        return self.recovery_point < end_offset or self.flushes.has_files

    def flush_is_due(self, end_offset: int, now_ms: int) -> bool:
        config = self.config
        unflushed_count = end_offset - self.recovery_point
        return self.has_unflushed(end_offset) and self.flushes.is_due(now_ms, unflushed_count, config.flush_messages, config.flush_ms)

    def take_flush(self, end_offset: int) -> FlushWork | None:
        """Returns the work that makes the log durable up to `end_offset`, its end; None if it is."""
        if not self.has_unflushed(end_offset):
            return None
        with storage_errors("flush", self.directory):
            return self.flushes.take(self.segments.active, self.directory, end_offset)

    def flushed(self, work: FlushWork) -> None:
        """Called when `work` has run: everything below its end offset is durable, unless the log was truncated meanwhile."""
        if self.flushes.complete(work):
            self.recovery_point = max(self.recovery_point, work.end_offset)

    def write_indexes(self) -> None:
        """Write every segment's indexes as a clean stop leaves them."""
        with storage_errors("close", self.directory):
            for segment in self.segments:
                segment.write_closing_indexes()
        self.flushes.note_paths(self.segments.active.index_paths())

    # -- inside ----------------------------------------------------------------------------------------------------

    def _remove(self, removed: list[LogSegment], now_ms: int, kept_offsets: Iterable[int] = ()) -> None:
        """Remove the files of segments that left the log. Snapshots at `kept_offsets` stay, because a segment still begins there."""
        self.deletions.add(removed, now_ms + self.config.file_delete_delay_ms)
        snapshots = [self._mark_snapshot(segment.base_offset) for segment in removed if segment.base_offset not in kept_offsets]
        self.deletions.add_paths([path for path in snapshots if path is not None], now_ms + self.config.file_delete_delay_ms)
        self.flushes.forget(removed)

    def _new_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        segment = LogSegment.create(self.directory, base_offset, self.config, now_ms, self._disk)
        segment.roll_jitter_ms = self._draw_jitter_ms()
        return segment

    def _draw_jitter_ms(self) -> int:
        limit = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return self._random_below(limit) if limit > 0 else 0
