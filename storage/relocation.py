"""A log's directory gets another name while the log is open: a copy takes the place of what it was made from.

The paths of a log with thousands of segments take milliseconds to make: they are made in pieces before the rename, which is then
one call of the disk and some assignments. Owner: who moves the log, on the loop; nothing of the log is being flushed meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from storage.disk import SYSTEM_DISK, Disk
from storage.files import rename
from storage.log import Log
from storage.segment import LogSegment

PREPARED_PIECE_SEGMENTS = 50  # whose paths are made between two yields, 10 µs each

SegmentPaths = tuple[Path, Path, Path, Path]


class Relocation:
    """`log`'s directory becomes `name`, below the same log directory."""

    __slots__ = ("_disk", "_paths", "log", "target")

    def __init__(self, log: Log, name: str, disk: Disk = SYSTEM_DISK) -> None:
        self.log = log
        self.target = log.directory.with_name(name)
        self._disk = disk
        self._paths: dict[LogSegment, SegmentPaths] = {}

    def prepare_in_pieces(self) -> Generator[None, None, None]:
        """Make the paths of the segments that are there now; yields after each piece of a millisecond."""
        for count, segment in enumerate(tuple(self.log.segments), 1):
            if segment not in self._paths:
                self._paths[segment] = self._paths_of(segment)
            if count % PREPARED_PIECE_SEGMENTS == 0:
                yield

    def apply(self) -> None:
        """Rename. StorageError when the disk refuses: nothing has changed then. A power cut may undo it until the log's next flush."""
        log = self.log
        for segment in log.segments:
            if not segment.is_active:
                segment.unload()  # what it still has to write goes by its present name
        rename(log.directory, self.target, self._disk)
        for segment in log.segments:
            paths = self._paths.get(segment) or self._paths_of(segment)
            if segment.is_active:
                segment.file.path = paths[0]
            segment.log_path, segment.offset_index.path, segment.time_index.path, segment.transaction_index.path = paths
        log.note_renamed(self.target)

    def _paths_of(self, segment: LogSegment) -> SegmentPaths:
        target = self.target
        return (
            target / segment.log_path.name,
            target / segment.offset_index.path.name,
            target / segment.time_index.path.name,
            target / segment.transaction_index.path.name,
        )
