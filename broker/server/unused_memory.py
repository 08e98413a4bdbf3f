"""Returns unused memory to the system, on Linux with the GNU C library; elsewhere it does nothing.

The C library keeps freed memory below the end of its heap. When the process has grown, a thread calls malloc_trim, without the GIL.
Python's allocator for small objects returns an arena of a megabyte when it is empty; a few objects that outlive a large request can keep
theirs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from broker.loop.blocking import RunBlocking
from broker.loop.clock import Clock, Timer

INTERVAL_MS = 10_000
SPARE_BYTES = 8 << 20
"""So much above the size at the start is nothing to look at: a broker that serves small requests never trims."""
CHANGE_BYTES = 2 << 20
"""A smaller difference between two looks is noise."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def anonymous_bytes() -> int:
    """Returns the resident memory that is not of files; 0 if the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            fields = statm.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES


def trim_heap() -> None:
    """Return the C library's free pages. Called in a thread: each of the library's arenas is locked meanwhile."""
    if sys.platform != "linux":
        return
    import ctypes  # late: it takes some milliseconds and a megabyte

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return  # the C library is another one
    trim(0)


class UnusedMemory:
    """Checks the size each INTERVAL_MS. Trims if it is above that at the start and has changed since the last check."""

    def __init__(self, clock: Clock, run_blocking: RunBlocking, anonymous_bytes: Callable[[], int] = anonymous_bytes) -> None:
        self._clock = clock
        self._run_blocking = run_blocking
        self._anonymous_bytes = anonymous_bytes
        self._timer: Timer | None = None
        self._least_bytes = 0
        self._seen_bytes = 0

    def start(self) -> None:
        self._seen_bytes = self._anonymous_bytes()
        self._least_bytes = self._seen_bytes + SPARE_BYTES
        if self._seen_bytes:
            self._timer = self._clock.call_later(INTERVAL_MS, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._clock.call_later(INTERVAL_MS, self._look)
        size = self._anonymous_bytes()
        if size >= self._least_bytes and abs(size - self._seen_bytes) >= CHANGE_BYTES:
            self._run_blocking(trim_heap)
        self._seen_bytes = size
