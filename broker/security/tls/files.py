"""The files of key stores and trust stores, and files in memory.

The only file of this folder that reaches the machine. An administrator's request may name a store's file, so that anything but a small
regular file is refused, before a byte of it is read.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

STORE_SIZE_MAX = 1024 * 1024
"""Bytes. Java's own store of all public authorities has a sixth of that."""


class StoreFileError(Exception):
    """A file that cannot be a store: `str()` says why, and repeats nothing of it."""


def read_store_file(path: str) -> bytes:
    """Raises StoreFileError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)  # a pipe would wait for a writer
    except (OSError, ValueError) as e:
        raise StoreFileError(f"cannot be opened: {e.strerror if isinstance(e, OSError) else 'not a path'}") from e
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StoreFileError("is not a regular file")
        if status.st_size > STORE_SIZE_MAX:
            raise StoreFileError(f"has more than {STORE_SIZE_MAX} bytes")
        return _read(descriptor)
    except OSError as e:
        raise StoreFileError(f"cannot be read: {e.strerror}") from e
    finally:
        os.close(descriptor)


def is_readable_by_all(path: str) -> bool:
    """Whether every user of this machine may read the file. A group is somebody's choice; False if the file is not there."""
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except (OSError, ValueError):
        return False


def _read(descriptor: int) -> bytes:
    data = bytearray()
    while len(data) <= STORE_SIZE_MAX:
        chunk = os.read(descriptor, STORE_SIZE_MAX + 1 - len(data))
        if not chunk:
            return bytes(data)
        data += chunk
    raise StoreFileError(f"has more than {STORE_SIZE_MAX} bytes")


@contextmanager
def memory_file(data: bytes) -> Iterator[str]:
    """A path under which this process can read `data`, which is on no disk: Python's ssl loads private keys by path only.

    Without memfd (macOS) or /proc it is a file for this user alone, in a folder for this user alone, removed at once."""
    if not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
        with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "key"), "wb", opener=_private) as file:
            file.write(data)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("barnabas-key", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
