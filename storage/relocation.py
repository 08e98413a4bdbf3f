"""Renames a log's directory while the log is open, when a copy replaces its source.

The segments' new paths, 10 µs each, are built before the rename, which is then one call of the disk and some assignments. Owner: the code
that moves the log, on the loop. No flush of the log may be running.
"""

from __future__ import annotations

from storage.disk import SYSTEM_DISK, Disk
from storage.files import rename
from storage.log import Log
from storage.segment import LogSegment, SegmentPaths


class Relocation:
    """`log`'s directory becomes `name`, below the same log directory."""

    __slots__ = ("_disk", "_paths", "log", "target")

    def __init__(self, log: Log, name: str, disk: Disk = SYSTEM_DISK) -> None:
        self.log = log
        self.target = log.directory.with_name(name)
        self._disk = disk
        self._paths: dict[LogSegment, SegmentPaths] = {}

    def prepare(self) -> None:
        """Build the new paths of the present segments."""
        self._paths = {segment: self._paths_of(segment) for segment in self.log.segments}

    def apply(self) -> None:
        """Rename the directory. StorageError when the disk fails: nothing has changed then. Until the log's next flush a power cut may
        undo it."""
        log = self.log
        for segment in log.segments:
            if not segment.is_active:
                segment.unload()  # what it still has to write goes by its present name
        rename(log.directory, self.target, self._disk)
        for segment in log.segments:
            paths = self._paths.get(segment) or self._paths_of(segment)
            segment.note_renamed(paths)
        log.note_renamed(self.target)

    def _paths_of(self, segment: LogSegment) -> SegmentPaths:
        log, offsets, times, transactions = (self.target / path.name for path in segment.all_paths)
        return log, offsets, times, transactions
