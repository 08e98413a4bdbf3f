"""How long a broker's loop was kept from its timers, measured from inside, and what part of that was the machine's doing.

A timer on the loop itself ticks every millisecond: no thread competes for the GIL, and no production code knows of it. A tick that
comes late tells how long the turn before it took. The kernel tells how much of that time the loop's thread ran, and how much it was
ready to run but another process had the core (/proc/thread-self/schedstat). What is left is the broker's own: it ran, waited for the
disk, or waited for the GIL. Linux only.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

TICK_S = 0.001
RECORDED_MIN_NS = 2_000_000  # lateness of a tick that is worth a record
SAMPLED_MIN_NS = 10_000_000  # lateness from which on the sampler looks what holds the loop
SAMPLE_INTERVAL_S = 0.005
FRAMES_SHOWN = 8

_HOLD = struct.Struct("<qqqq")


class Hold(NamedTuple):
    """One late tick. Times are CLOCK_MONOTONIC's nanoseconds, the same in every process of the machine."""

    end_ns: int
    late_ns: int
    cpu_ns: int
    """Of the loop's thread, between this tick and the one before."""
    waited_ns: int
    """Ready to run while something else had the core."""

    @property
    def own_ns(self) -> int:
        """What remains when the machine's stall is taken off: the broker's own hold. Part of the stall may have been before the tick was
        due, but what the thread computed beyond the tick's interval was after it."""
        return max(self.late_ns - self.waited_ns, self.cpu_ns - int(TICK_S * 1e9), 0)


class LoopMeter:
    """Ticks on `loop` from its first turn on, and appends a record to `path` for each tick that comes late."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        self._loop = loop
        self._path = path
        self._file = -1
        self._schedstat = -1
        self._cpu_ns = 0
        self._waited_ns = 0
        self.last_tick_ns = time.monotonic_ns()

    def start(self) -> None:
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        """On the loop's thread, whose schedstat it is."""
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._cpu_ns, self._waited_ns = self._read()
        self.last_tick_ns = time.monotonic_ns()
        self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        cpu_ns, waited_ns = self._read()
        now_ns = time.monotonic_ns()
        late_ns = now_ns - self.last_tick_ns - int(TICK_S * 1e9)
        if late_ns >= RECORDED_MIN_NS:
            os.write(self._file, _HOLD.pack(now_ns, late_ns, cpu_ns - self._cpu_ns, waited_ns - self._waited_ns))
        self.last_tick_ns, self._cpu_ns, self._waited_ns = now_ns, cpu_ns, waited_ns
        self._loop.call_later(TICK_S, self._tick)

    def _read(self) -> tuple[int, int]:
        cpu_ns, waited_ns, _ = os.pread(self._schedstat, 64, 0).split()
        return int(cpu_ns), int(waited_ns)


class StackSampler:
    """Writes where the loop's thread is while a tick is overdue. Its own wake-ups take the GIL: only for finding a culprit."""

    def __init__(self, meter: LoopMeter, path: Path) -> None:
        self._meter = meter
        self._path = path
        self._thread_id = threading.get_ident()
        threading.Thread(target=self._run, name="stack-sampler", daemon=True).start()

    def _run(self) -> None:
        with self._path.open("a", buffering=1) as out:
            while True:
                time.sleep(SAMPLE_INTERVAL_S)
                late_ns = time.monotonic_ns() - self._meter.last_tick_ns
                frame = sys._current_frames().get(self._thread_id) if late_ns >= SAMPLED_MIN_NS else None
                stack: list[str] = []
                while frame is not None and len(stack) < FRAMES_SHOWN:
                    stack.append(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name}")
                    frame = frame.f_back
                if stack:
                    print(f"{late_ns / 1e6:.0f} ms: {' < '.join(stack)}", file=out)


def read_holds(path: Path) -> list[Hold]:
    """All that a meter has recorded so far, oldest first."""
    data = path.read_bytes() if path.exists() else b""
    return [Hold(*fields) for fields in _HOLD.iter_unpack(data[: len(data) - len(data) % _HOLD.size])]


def between(holds: Sequence[Hold], start_ns: int, end_ns: int) -> list[Hold]:
    """The holds that reach into the time from `start_ns` to `end_ns`."""
    return [hold for hold in holds if hold.end_ns >= start_ns and hold.end_ns - hold.late_ns <= end_ns]
