"""Gives memory that nobody uses back to the system, on Linux with the GNU C library; elsewhere nothing is done.

What a large request held is freed at once, but the process keeps most of it. The C library returns only the end of its heap, and after
one block of 32 MB nothing below 64 MB. Python keeps up to 2,000 freed tuples of each length up to 20, and each one keeps its megabyte.

And Python gives a megabyte of small objects back only when none is left in it. The places of lists, dicts, floats and others go round: a
freed one's is the next one's, so that a few hundred objects that come and go stay where they were when memory was high, and keep it.

So three things are done when the process has grown, at most once in INTERVAL_MS:
- The loop empties caches whose entries may have come with large requests, and drops codecs that nobody asks for.
- A thread calls malloc_trim, without the GIL.
- The loop lets Python drop the places that are free (GarbageCollection.drop_free_lists), SWEEPS times: each time other objects have come
  and gone, and find theirs in fuller megabytes. In a model of it 97 MB became 31.
Whether it helped cannot be known before: what was freed meanwhile is resident like what is in use. While nothing comes back and nothing
grows, the interval doubles up to INTERVAL_MAX_MS.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable
from functools import partial
from types import GeneratorType

from broker.blocking import RunBlocking
from broker.clock import Clock, Timer

INTERVAL_MS = 10_000
INTERVAL_MAX_MS = 80_000
SPARE_BYTES = 8 << 20
"""So much above the size at the start is nothing to look at: a broker that serves small requests never trims."""
SWEEPS = 9
SWEEP_INTERVAL_MS = 1_000
"""The last one comes before the next look."""
CHANGE_BYTES = 2 << 20
"""A smaller difference between two looks is noise."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def anonymous_bytes() -> int:
    """Resident memory that is no file's; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            fields = statm.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES


def trim_heap() -> None:
    """Give the C library's free pages back. For a thread: each of the library's arenas is locked meanwhile."""
    if sys.platform != "linux":
        return
    import ctypes  # takes some milliseconds and a megabyte: imported at the first use

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return  # not the GNU C library
    trim(0)


def _go_on(work: Generator[None, None, None]) -> Generator[None, None, None] | None:
    """Does one more piece. Returns the work, unless that was the last."""
    for _ in work:
        return work
    return None


class UnusedMemory:
    """The schedule. `forget` is called on the loop, then `sweep`, the first of several times, and `run_blocking(trim_heap)`: each of them
    in a turn of the loop of its own, for one may take 2 ms. One that returns a generator has a turn for each of its pieces."""

    def __init__(
        self,
        clock: Clock,
        forget: Iterable[Callable[[], object]],
        sweep: Callable[[], object],
        run_blocking: RunBlocking,
        anonymous_bytes: Callable[[], int] = anonymous_bytes,
    ) -> None:
        self._clock = clock
        self._forget = tuple(forget)
        self._sweep = sweep
        self._sweeps_left = 0
        self._sweep_timer: Timer | None = None
        self._steps: list[Callable[[], object]] = []  # the next one last
        self._step_timer: Timer | None = None
        self._run_blocking = run_blocking
        self._anonymous_bytes = anonymous_bytes
        self._timer: Timer | None = None
        self._start_bytes = 0
        self._seen_bytes = 0
        self._interval_ms = INTERVAL_MS
        self._waited_ms = 0

    def start(self) -> None:
        self._start_bytes = self._seen_bytes = self._anonymous_bytes()
        if self._start_bytes:
            self._timer = self._clock.call_later(INTERVAL_MS, self._trim_if_changed)

    def stop(self) -> None:
        for timer in (self._timer, self._step_timer, self._sweep_timer):
            if timer is not None:
                timer.cancel()

    def _trim_if_changed(self) -> None:
        self._timer = self._clock.call_later(INTERVAL_MS, self._trim_if_changed)
        size = self._anonymous_bytes()
        has_changed = abs(size - self._seen_bytes) >= CHANGE_BYTES  # it grew, or the trim before helped
        self._seen_bytes = size
        if has_changed:
            self._interval_ms = INTERVAL_MS
            self._waited_ms = 0
        self._waited_ms += INTERVAL_MS
        if size < self._start_bytes + SPARE_BYTES or self._waited_ms < self._interval_ms:
            return
        self._waited_ms = 0
        self._interval_ms = min(2 * self._interval_ms, INTERVAL_MAX_MS)
        self._sweeps_left = SWEEPS
        self._steps = [lambda: self._run_blocking(trim_heap), self._sweep_once, *reversed(self._forget)]
        self._do_step()

    def _do_step(self) -> None:
        outcome = self._steps.pop()()
        if type(outcome) is GeneratorType:
            self._steps.append(partial(_go_on, outcome))
        if self._steps:
            self._step_timer = self._clock.call_later(0, self._do_step)

    def _sweep_once(self) -> None:
        self._sweep()
        self._sweeps_left -= 1
        if self._sweeps_left:
            self._sweep_timer = self._clock.call_later(SWEEP_INTERVAL_MS, self._sweep_once)
