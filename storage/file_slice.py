"""Segment files with counted references, and the slices of them in fetch responses.

Invariant: a descriptor closes only after its owner and every slice released it. Retention may delete a segment while an outbox still sends
from it. If the descriptor were closed then, its number could be reused, and another topic's bytes would be sent. Owners: a LogSegment owns
one reference to its SegmentFile; the receiver of a FileSlice owns one until `release`.
"""

from __future__ import annotations

import os
from pathlib import Path

from storage.disk import PRIVATE_FILE, SYSTEM_DISK, Disk
from storage.errors import StorageError
from storage.page_cache import read_at, read_into


class SegmentFile:
    """An open .log file. It starts with one reference, its opener's; `fd` is valid until the last `release`.

    `path` is where the file has to be. It is None after its segment was closed or left the log: then others may rename the file."""

    __slots__ = ("_references", "disk", "fd", "path")

    def __init__(self, fd: int, path: Path | None = None, disk: Disk = SYSTEM_DISK) -> None:
        self.fd = fd
        self.disk = disk
        self.path = path
        self._references = 1

    @classmethod
    def open(cls, path: Path, *, create: bool = False, disk: Disk = SYSTEM_DISK) -> SegmentFile:
        """Open for reading and positioned writing; `create` makes an empty file and refuses an existing one."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return cls(disk.open(path, flags, PRIVATE_FILE), path, disk)

    def check_in_place(self) -> None:
        """StorageError if another program has removed or replaced the file: later writes to it would be lost.

        Any thread may call it. OSError when the disk fails."""
        path = self.path
        if path is None:
            return
        own = self.disk.fstat(self.fd)
        try:
            found = self.disk.stat(path)
            is_in_place = (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)
        except (FileNotFoundError, NotADirectoryError):
            is_in_place = False
        if not is_in_place and self.path is not None:  # the loop clears the path before it renames the file
            raise StorageError(f"{path} was removed or replaced while it was written to: what was appended to it is lost", path=path)

    def acquire(self) -> SegmentFile:
        self._references += 1
        return self

    def release(self) -> None:
        assert self._references > 0, "a segment file was released more often than it was acquired"
        self._references -= 1
        if self._references == 0:
            self.disk.close(self.fd)
            self.fd = -1


class FileSlice:
    """Whole batches inside one segment file: `size` bytes from `position`. The holder calls `release` once it is done."""

    __slots__ = ("_file", "disk", "fd", "position", "size")

    def __init__(self, file: SegmentFile, position: int, size: int) -> None:
        file._references += 1  # acquire(), inlined: once per partition of every fetch
        self._file: SegmentFile | None = file
        self.disk = file.disk
        self.fd = file.fd
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """Returns the slice's bytes. StorageError when the file ends before them."""
        return read_exactly(self.fd, self.size, self.position, self.disk)

    def read_into(self, buffer: memoryview) -> memoryview:
        """Reads the slice's bytes into the front of `buffer`, which is returned. StorageError when the file ends before them."""
        found = buffer[: self.size]
        try:
            count = read_into(self.fd, found, self.position, self.disk)
        except OSError as error:
            raise StorageError(f"cannot read {self.size} bytes at {self.position}: {error}") from error
        if count < self.size:
            raise StorageError(f"segment file ends at {self.position + count}, {self.size} bytes were expected at {self.position}")
        return found

    def release(self) -> None:
        """Release the file. Further calls do nothing; the slice cannot be read afterwards."""
        file, self._file = self._file, None
        if file is not None:
            self.fd = -1
            if file._references > 1:
                file._references -= 1  # release(), inlined as in the constructor
            else:
                file.release()


def take_bytes(records: FileSlice | bytes) -> bytes:
    """Returns the result of a read as bytes; a slice is released."""
    if isinstance(records, bytes):
        return records
    try:
        return records.read()
    finally:
        records.release()


def read_exactly(fd: int, size: int, position: int, disk: Disk = SYSTEM_DISK) -> bytes:
    """Returns `size` bytes at `position` of `fd`; StorageError when the file is shorter or cannot be read. ColdRead as `read_at`."""
    try:
        data = read_at(fd, size, position, disk)
        while len(data) < size:  # Linux returns at most 2 GiB a call, signals may cut it shorter
            more = read_at(fd, size - len(data), position + len(data), disk)
            if not more:
                raise StorageError(f"segment file ends at {position + len(data)}, {size} bytes were expected at {position}")
            data += more
    except OSError as error:
        raise StorageError(f"cannot read {size} bytes at {position}: {error}") from error
    return data
