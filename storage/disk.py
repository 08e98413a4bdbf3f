"""The interface to the disk: the functions of `os` that storage/ calls, by their names.

SYSTEM_DISK is the machine's: its attributes are the functions of `os` themselves, so that a call through it costs as much as a call of
`os`. A simulated disk has the same names. All code in storage/ gets its disk as an argument, and only this module opens, renames or
synchronises files (tests/test_adapters.py). Every call raises OSError.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

PathLike = str | os.PathLike[str]
Data = bytes | bytearray | memoryview
PRIVATE_FILE = 0o600
"""The mode of every file in a log directory: records are its users', and the metadata log has their credentials. Kafka leaves it to the
umask."""
PRIVATE_DIRECTORY = 0o700
WILL_NEED: int = getattr(os, "POSIX_FADV_WILLNEED", 3)


class FileStatus(Protocol):
    """The used fields of an os.stat_result."""

    @property
    def st_dev(self) -> int: ...
    @property
    def st_ino(self) -> int: ...
    @property
    def st_mtime(self) -> float: ...
    @property
    def st_size(self) -> int: ...


class FileSystemStatus(Protocol):
    """The used fields of an os.statvfs_result."""

    @property
    def f_frsize(self) -> int: ...
    @property
    def f_blocks(self) -> int: ...
    @property
    def f_bavail(self) -> int: ...


class DirectoryEntry(NamedTuple):
    """One name in a directory. A link to a directory is a directory."""

    name: str
    is_directory: bool


class Disk(Protocol):
    """Functions of `os` with these names, except those with a docstring."""

    # descriptors
    def open(self, path: PathLike, flags: int, mode: int = 0o777, /) -> int: ...
    def close(self, fd: int, /) -> None: ...
    def dup(self, fd: int, /) -> int: ...
    def fstat(self, fd: int, /) -> FileStatus: ...
    def lock(self, fd: int, /) -> bool:
        """Whether the exclusive lock on the file is this process's now; it ends when the descriptor is closed or the process dies."""
        ...

    # reading and writing
    def pread(self, fd: int, size: int, position: int, /) -> bytes: ...
    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, flags: int = 0, /) -> int: ...
    def pwrite(self, fd: int, data: Data, position: int, /) -> int: ...
    def write(self, fd: int, data: Data, /) -> int: ...
    def ftruncate(self, fd: int, size: int, /) -> None: ...
    def truncate(self, path: PathLike, size: int, /) -> None: ...
    def utime(self, path: PathLike, times: tuple[float, float], /) -> None: ...
    def posix_fadvise(self, fd: int, position: int, size: int, advice: int, /) -> None: ...

    # durability: an error of these is never retried, because the kernel may have dropped the pages that it could not write
    def fsync(self, fd: int, /) -> None: ...
    def fdatasync(self, fd: int, /) -> None: ...
    def can_syncfs(self) -> bool:
        """Whether `syncfs` is there (Linux): one call then makes every dirty file of a log directory durable."""
        ...

    def syncfs(self, fd: int, /) -> None:
        """Make the whole file system that holds the descriptor durable, as syncfs(2) does."""
        ...

    # names
    def stat(self, path: PathLike, /) -> FileStatus: ...
    def statvfs(self, path: PathLike, /) -> FileSystemStatus: ...
    def exists(self, path: PathLike, /) -> bool:
        """os.path.exists."""
        ...

    def replace(self, source: PathLike, target: PathLike, /) -> None: ...
    def unlink(self, path: PathLike, /) -> None: ...
    def mkdir(self, path: PathLike, mode: int = 0o777, /) -> None: ...
    def rmdir(self, path: PathLike, /) -> None: ...
    def scan(self, path: PathLike, /) -> list[DirectoryEntry]:
        """The directory's entries in no order."""
        ...


class SystemDisk:
    """See the module's docstring. Slots, so that an attribute is found as fast as one of the module `os`."""

    __slots__ = (
        "can_syncfs", "close", "dup", "exists", "fdatasync", "fstat", "fsync", "ftruncate", "lock", "mkdir", "open",
        "posix_fadvise", "pread", "preadv", "pwrite", "replace", "rmdir", "scan", "stat", "statvfs", "syncfs", "truncate",
        "unlink", "utime", "write",
    )  # fmt: skip

    def __init__(self) -> None:
        self.open = os.open
        self.close = os.close
        self.dup = os.dup
        self.fstat = os.fstat
        self.lock = _lock
        self.pread = os.pread
        self.preadv = os.preadv
        self.pwrite = os.pwrite
        self.write = os.write
        self.ftruncate = os.ftruncate
        self.truncate = os.truncate
        self.utime = os.utime
        self.posix_fadvise = getattr(os, "posix_fadvise", _ignore_advice)
        self.fsync = os.fsync
        self.fdatasync = _full_fsync if sys.platform == "darwin" else os.fdatasync
        self.can_syncfs = _can_syncfs
        self.syncfs = _syncfs
        self.stat = os.stat
        self.statvfs = os.statvfs
        self.exists = os.path.exists
        self.replace = os.replace
        self.unlink = os.unlink
        self.mkdir = os.mkdir
        self.rmdir = os.rmdir
        self.scan = _scan

    def __reduce__(self) -> str:
        """Pickled by its name: a worker process has its own."""
        return "SYSTEM_DISK"


def _lock(fd: int) -> bool:
    """Takes two locks on one file. The POSIX lock is that of Java's FileLock, so a Kafka broker and this one exclude each other. It does
    not conflict within one process, so flock is taken too."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


def _scan(path: PathLike) -> list[DirectoryEntry]:
    with os.scandir(path) as entries:
        return [DirectoryEntry(entry.name, entry.is_dir()) for entry in entries]


def _full_fsync(fd: int) -> None:
    """fsync on macOS stops at the drive's cache; only F_FULLFSYNC empties it. There is no fdatasync."""
    fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined,unused-ignore]


def _ignore_advice(fd: int, position: int, size: int, advice: int) -> None:
    """For systems without posix_fadvise."""


def _can_syncfs() -> bool:
    return _find_syncfs() is not None


def _syncfs(fd: int) -> None:
    function = _find_syncfs()
    assert function is not None, "the caller asks can_syncfs() first"
    function(fd)


@functools.cache
def _find_syncfs() -> Callable[[int], None] | None:
    """The C library's syncfs, None where there is none. A start need not load ctypes for it."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int]
    function.restype = ctypes.c_int

    def syncfs(fd: int) -> None:
        if function(fd) != 0:
            error_number = ctypes.get_errno()
            raise OSError(error_number, os.strerror(error_number))

    return syncfs


SYSTEM_DISK = SystemDisk()
