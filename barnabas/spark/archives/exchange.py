"""Two directories change places at once: renameat2(2) with RENAME_EXCHANGE, which Linux has and Python does not."""

from __future__ import annotations

import ctypes
import os

AT_FDCWD = -100
RENAME_EXCHANGE = 2


def exchange(first: str, second: str) -> None:
    """OSError where the file system or the machine cannot do it (NFS, macOS); nothing has changed then."""
    library = ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    if rename is None:
        raise OSError("this machine has no renameat2")
    if rename(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), first)


def sync(path: str) -> None:
    """Returns when a file's or a directory's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
