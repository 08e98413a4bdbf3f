"""A log's directory gets another name while the log is open: a copy takes the place of what it was made from.

The segments' paths, 10 µs each, are made before the rename, which is then one call of the disk and some assignments. Owner: who moves
the log, on the loop; nothing of the log is being flushed meanwhile.
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
        """Make the paths of the segments that are there now."""
        self._paths = {segment: self._paths_of(segment) for segment in self.log.segments}

    def apply(self) -> None:
        """Rename. StorageError when the disk refuses: nothing has changed then. A power cut may undo it until the log's next flush."""
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
