"""Making a log durable off the loop: what has to be synchronised, and up to which offset that covers the log.

A FlushWork is immutable. The loop makes it (`Log.take_flush`), any thread runs it, the loop swaps the result in (`Log.flushed`) or
drops it (`release`) when it failed. It holds references to the segment files, so that nothing closes them meanwhile.
Invariant: index entries were written before the work was made, so what lies below a recovery point can be trusted with its indexes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from storage.errors import StorageError
from storage.file_slice import SegmentFile
from storage.files import sync_data, sync_directory


@dataclass(frozen=True, slots=True)
class FlushWork:
    """Files to synchronise so that every batch below `end_offset` is durable.

    `generation` is the log's count of truncations: a work older than a truncation must not move the recovery point."""

    end_offset: int
    generation: int
    files: tuple[SegmentFile, ...]
    paths: tuple[Path, ...]
    directory: Path | None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The segment files' descriptors, for a committer that synchronises their whole file system with one call."""
        return tuple(file.fd for file in self.files)

    def run(self) -> None:
        """Synchronise file by file; blocks. StorageError on any failure, which must not be retried: the kernel may have dropped
        the pages that it could not write."""
        try:
            for file in self.files:
                sync_data(file.fd)
            for path in self.paths:
                _sync_path(path)
        except OSError as error:
            raise StorageError(f"cannot synchronise up to offset {self.end_offset}: {error}") from error
        if self.directory is not None:
            sync_directory(self.directory)

    def release(self) -> None:
        """Let go of the segment files. `Log.flushed` calls it; whoever drops a failed work does too."""
        for file in self.files:
            file.release()


def _sync_path(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # retention or a rebuild removed it meanwhile
    try:
        sync_data(fd)
    finally:
        os.close(fd)
