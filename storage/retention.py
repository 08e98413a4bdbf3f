"""Decides which old segments are deleted (UnifiedLog.deleteOldSegments), and keeps the files that wait for their deletion delay.

Pure decisions over LogSegments, plus the queue of renamed files. Segments are deleted only from the front and only below the high
watermark, so the log start offset can never pass that. Owner: Log.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from config.topic import LogConfig
from storage.disk import SYSTEM_DISK, Disk
from storage.files import DELETED_SUFFIX, delete_if_exists, rename
from storage.log_segments import LogSegments
from storage.segment import LogSegment


class PendingDeletion(NamedTuple):
    """Files renamed to `.deleted`, to be deleted at `due_ms`: readers may still hold slices, and backup tools may still read them."""

    due_ms: int
    paths: tuple[Path, ...]


def count_deletable(
    segments: LogSegments, config: LogConfig, *, log_start_offset: int, log_end_offset: int, high_watermark: int, now_ms: int
) -> int:
    """Returns how many segments to delete from the front.

    Case A: the log start offset has passed a segment: always. Case B: more bytes than retention.bytes remain without it.
    Case C: its youngest record is older than retention.ms. B and C only where cleanup.policy has `delete`."""
    excess_bytes = segments.size_bytes - config.retention_bytes if config.is_deleted and config.retention_bytes >= 0 else -1
    oldest_ms = now_ms - config.retention_ms if config.is_deleted and config.retention_ms >= 0 else None
    count = 0
    for index, segment in enumerate(segments):
        is_last = index == len(segments) - 1
        end_offset = segments.end_offset_of(index, log_end_offset)
        if end_offset > high_watermark or (is_last and segment.size_bytes == 0):
            break
        starts_later = not is_last and end_offset <= log_start_offset  # Case A
        is_excess = excess_bytes - segment.size_bytes >= 0  # Case B
        if not starts_later and not is_excess:
            if oldest_ms is None:
                break
            largest_ms = segment.largest_timestamp()
            segments.note_read(segment)
            if largest_ms >= oldest_ms:  # Case C
                break
        excess_bytes -= segment.size_bytes
        count += 1
    return count


class DelayedDeletions:
    """The renamed files of one log. Owner: that Log."""

    __slots__ = ("_disk", "_pending")

    def __init__(self, disk: Disk = SYSTEM_DISK) -> None:
        self._disk = disk
        self._pending: list[PendingDeletion] = []

    def add(self, segments: list[LogSegment], due_ms: int) -> None:
        """Rename the files of segments that left the log. After a crash the next start removes them."""
        marked: list[Path] = []
        for segment in segments:
            paths = segment.paths()
            segment.abandon()
            for path in paths:
                target = path.with_name(path.name + DELETED_SUFFIX)
                rename(path, target, self._disk)
                marked.append(target)
        self.add_paths(marked, due_ms)

    def add_paths(self, marked: list[Path], due_ms: int) -> None:
        """Add files that are renamed already."""
        if marked:
            self._pending.append(PendingDeletion(due_ms, tuple(marked)))

    @property
    def is_any(self) -> bool:
        """Whether files wait, due or not."""
        return bool(self._pending)

    def note_renamed(self, directory: Path) -> None:
        """Set the directory's new name."""
        self._pending = [PendingDeletion(due_ms, tuple(directory / path.name for path in paths)) for due_ms, paths in self._pending]

    def take_due(self, now_ms: int) -> list[PendingDeletion]:
        due = [deletion for deletion in self._pending if deletion.due_ms <= now_ms]
        self._pending = [deletion for deletion in self._pending if deletion.due_ms > now_ms]
        return due


def delete_files(deletion: PendingDeletion, disk: Disk = SYSTEM_DISK) -> None:
    """Unlink them; may block for milliseconds on large files."""
    for path in deletion.paths:
        delete_if_exists(path, disk)
