"""The snapshot files of the metadata log: `<20-digit end offset>-<10-digit epoch>.checkpoint`, whole or not there at all (KIP-630).

A snapshot that is being fetched is written to a `.checkpoint.part` file, which gets its name when it is complete and durable. Leftover
parts are deleted at the start.
Owner: QuorumLog. All calls block for the disk; a piece of PIECE_BYTES takes well under a millisecond from the page cache.

Source: org.apache.kafka.snapshot.Snapshots, FileRawSnapshotReader, FileRawSnapshotWriter.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from broker.quorum.raft_log import OffsetAndEpoch
from storage.disk import PRIVATE_FILE, SYSTEM_DISK, Disk
from storage.errors import StorageError, storage_errors
from storage.files import delete_if_exists, rename, sync_directory, write_fully

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
PIECE_BYTES = 1024 * 1024

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def snapshot_name(snapshot: OffsetAndEpoch) -> str:
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


class SnapshotFiles:
    """The snapshots in one directory, by their end offset and epoch."""

    def __init__(self, directory: Path, disk: Disk = SYSTEM_DISK) -> None:
        self.directory = directory
        self._disk = disk
        self._known: dict[OffsetAndEpoch, Path] = {}
        with storage_errors("list", directory):
            names = sorted(entry.name for entry in disk.scan(directory))
        for name in names:
            match = _NAME.fullmatch(name)
            if match is not None:
                self._known[OffsetAndEpoch(int(match[1]), int(match[2]))] = directory / name
            elif name.endswith(PART_SUFFIX):
                delete_if_exists(directory / name, disk)

    def __contains__(self, snapshot: OffsetAndEpoch) -> bool:
        return snapshot in self._known

    @property
    def latest(self) -> OffsetAndEpoch | None:
        return max(self._known, default=None)

    @property
    def earliest(self) -> OffsetAndEpoch | None:
        return min(self._known, default=None)

    def all(self) -> list[OffsetAndEpoch]:
        """Oldest first."""
        return sorted(self._known)

    def path_of(self, snapshot: OffsetAndEpoch) -> Path:
        return self._known[snapshot]

    def note_written(self, snapshot: OffsetAndEpoch) -> None:
        """Add a snapshot whose file another object has written durably."""
        self._known[snapshot] = self.directory / snapshot_name(snapshot)

    def forget(self, snapshot: OffsetAndEpoch) -> Path:
        """Remove the snapshot from the list. The caller deletes the returned file."""
        return self._known.pop(snapshot)

    # -- sending ---------------------------------------------------------------------------------------------------

    def read(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[bytes, int] | None:
        """Returns the bytes from `position`, and the file's size; None if there is no such snapshot."""
        path = self._known.get(snapshot)
        if path is None:
            return None
        with storage_errors("read", path):
            descriptor = self._disk.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = self._disk.fstat(descriptor).st_size
                return self._disk.pread(descriptor, min(max_bytes, PIECE_BYTES), position), size
            finally:
                self._disk.close(descriptor)

    # -- receiving -------------------------------------------------------------------------------------------------

    def begin(self, snapshot: OffsetAndEpoch) -> None:
        """Create an empty file for a snapshot that will be fetched."""
        path = self._part(snapshot)
        with storage_errors("create", path):
            self._disk.close(self._disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE))

    def append(self, snapshot: OffsetAndEpoch, position: int, content: bytes | memoryview) -> None:
        path = self._part(snapshot)
        with storage_errors("write", path):
            descriptor = self._disk.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                if self._disk.fstat(descriptor).st_size != position:
                    raise StorageError(f"{path} does not end at {position}", path=path)
                write_fully(descriptor, content, self._disk)
            finally:
                self._disk.close(descriptor)

    def finish(self, snapshot: OffsetAndEpoch) -> Path:
        """Called when the file is complete: make it durable under its name."""
        part = self._part(snapshot)
        with storage_errors("synchronise", part):
            descriptor = self._disk.open(part, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._disk.fsync(descriptor)
            finally:
                self._disk.close(descriptor)
        path = self.directory / snapshot_name(snapshot)
        rename(part, path, self._disk)
        sync_directory(self.directory, disk=self._disk)
        self._known[snapshot] = path
        return path

    def _part(self, snapshot: OffsetAndEpoch) -> Path:
        return self.directory / snapshot_name(snapshot).replace(SUFFIX, PART_SUFFIX)
