"""Reads of files that do not wait for the disk, and reads in a thread that bring missing pages into memory.

Reading or sending a page that is not in memory blocks for a disk read, and on the event loop every client waits with it. Linux answers
without reading: preadv2 with RWF_NOWAIT fails with EAGAIN on an absent page. So the loop reads `with not_waiting:`. If a read would wait,
it raises ColdRead with the missing range, a thread reads that into memory, and the loop tries again. On other systems every page counts as
resident.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from storage.disk import SYSTEM_DISK, WILL_NEED, Disk

PROBE_INTERVAL = 128 * 1024  # bytes; the kernel reads ahead in windows of about this size, so pages of one window come and go together

_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)


class ColdRead(Exception):  # noqa: N818 - a decision, not a fault
    """A read would have to wait for the disk. `bring_in`, in a thread, makes its bytes resident. It must be called: a descriptor is held
    until then, so that the file may be closed or deleted meanwhile."""

    def __init__(self, fd: int, position: int, size: int, disk: Disk = SYSTEM_DISK) -> None:
        super().__init__(f"bytes [{position}, {position + size}) are not in memory")
        self._disk = disk
        self._fd = disk.dup(fd)
        self._position = position
        self._size = size

    def bring_in(self) -> None:
        """Blocks until the bytes are in memory. OSError when the disk fails."""
        try:
            read_in(self._fd, self._position, self._size, self._disk)
        finally:
            self._disk.close(self._fd)


class _Policy(threading.local):
    """Thread-local, so that only reads on the loop do not wait."""

    may_wait = True


policy = _Policy()
"""`not_waiting` sets it; so may code that is called too often for a context manager, and sets it back to True in the end."""


class _NotWaiting:
    __slots__ = ()

    def __enter__(self) -> None:
        policy.may_wait = False

    def __exit__(self, *exception: object) -> None:
        policy.may_wait = True


not_waiting = _NotWaiting()
"""`with not_waiting:` makes `read_at` of this thread raise ColdRead where it would wait for the disk. Not to be nested."""


@contextmanager
def waiting() -> Iterator[None]:
    """Lets reads wait within `not_waiting`, for work that must not be interrupted."""
    before = policy.may_wait
    policy.may_wait = True
    try:
        yield
    finally:
        policy.may_wait = before


def read_at(fd: int, size: int, position: int, disk: Disk = SYSTEM_DISK, *, missing: tuple[int, int] | None = None) -> bytes:
    """Like os.pread: up to `size` bytes, fewer only at the end of the file. `missing` is the range (position, size) that ColdRead brings
    in, by default these bytes."""
    if policy.may_wait or _NOWAIT is None:
        return disk.pread(fd, size, position)
    buffer = bytearray(size)
    try:
        count = disk.preadv(fd, [buffer], position, _NOWAIT)
        if 0 < count < size:  # the end of the file, or of what is resident
            disk.preadv(fd, [bytearray(1)], position + count, _NOWAIT)
            count += disk.preadv(fd, [memoryview(buffer)[count:]], position + count, _NOWAIT)
    except BlockingIOError:
        raise ColdRead(fd, *(missing or (position, size)), disk) from None
    except OSError:  # a file system without RWF_NOWAIT; pread raises any other error
        return disk.pread(fd, size, position)
    return bytes(buffer if count == size else buffer[:count])


def read_into(fd: int, buffer: memoryview, position: int, disk: Disk = SYSTEM_DISK) -> int:
    """As `read_at`, into the caller's memory: returns how many bytes. Fresh memory for a megabyte costs more than the read."""
    if policy.may_wait or _NOWAIT is None:
        return disk.preadv(fd, [buffer], position)
    try:
        count = disk.preadv(fd, [buffer], position, _NOWAIT)
        if 0 < count < len(buffer):  # the end of the file, or of what is resident
            disk.preadv(fd, [bytearray(1)], position + count, _NOWAIT)
            count += disk.preadv(fd, [buffer[count:]], position + count, _NOWAIT)
    except BlockingIOError:
        raise ColdRead(fd, position, len(buffer), disk) from None
    except OSError:  # a file system without RWF_NOWAIT; this raises any other error
        return disk.preadv(fd, [buffer], position)
    return count


def is_resident(fd: int, position: int, size: int, disk: Disk = SYSTEM_DISK) -> bool:
    """Whether probes find bytes [position, position + size) in the page cache. A probe takes about 0.7 µs."""
    if _NOWAIT is None:
        return True
    probe = [bytearray(1)]
    last = position + size - 1
    try:
        for at in range(position, last, PROBE_INTERVAL):
            disk.preadv(fd, probe, at, _NOWAIT)
        disk.preadv(fd, probe, last, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # a file system without RWF_NOWAIT: nothing to be learnt
        return True
    return True


def read_in(fd: int, position: int, size: int, disk: Disk = SYSTEM_DISK) -> None:
    """Read the pages of [position, position + size) into memory, copying almost nothing. Blocks: for the thread pool only."""
    disk.posix_fadvise(fd, position, size, WILL_NEED)  # begins all the reads …
    probe = [bytearray(1)]
    for at in (*range(position, position + size, PROBE_INTERVAL), position + size - 1):
        if disk.preadv(fd, probe, at) == 0:  # … and each of these waits for one of them
            return
