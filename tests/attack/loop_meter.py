"""How long a broker's loop was kept from its timers, measured from inside, and what part of that was the machine's doing.

A timer on the loop itself ticks every millisecond: no thread competes for the GIL, and no production code knows of it. A tick that
comes late tells how long the turn before it took. The kernel tells how much of that time the loop's thread ran, and how much it was
ready to run but another process had the core (/proc/thread-self/schedstat, whose CPU time is not used: while the thread runs, it is as
old as the scheduler's last tick, 4 ms). What is left is the broker's own: it ran, waited for the disk, or waited for the GIL. Linux only.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

TICK_S = 0.001
RECORDED_MIN_NS = 2_000_000  # lateness of a tick that is worth a record
SAMPLED_MIN_NS = 8_000_000  # CPU between two ticks from which on the samples in between are written
SAMPLE_INTERVAL_S = 0.001
FRAMES_SHOWN = 9

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
        self.on_tick: Callable[[int, int], object] | None = None
        """Told how late each tick came, and the CPU of the loop's thread since the one before."""

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
        if self.on_tick is not None:
            self.on_tick(late_ns, cpu_ns - self._cpu_ns)
        self.last_tick_ns, self._cpu_ns, self._waited_ns = now_ns, cpu_ns, waited_ns
        self._loop.call_later(TICK_S, self._tick)

    def _read(self) -> tuple[int, int]:
        _, waited_ns, _ = os.pread(self._schedstat, 64, 0).split()
        return time.thread_time_ns(), int(waited_ns)


class StackSampler:
    """Writes where the loop's thread was within a long hold: at each SAMPLE_INTERVAL_S of the process's CPU, by a signal that Python
    handles between two bytecodes of that thread, and where a garbage collection ended. Only for finding a culprit: it costs some itself."""

    def __init__(self, meter: LoopMeter, path: Path) -> None:
        self._out = path.open("a", buffering=1)
        self._samples: list[str] = []
        self._cpu_ns = self._collection_ns = 0
        meter.on_tick = self._note_tick
        gc.callbacks.append(self._note_collection)
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_INTERVAL_S, SAMPLE_INTERVAL_S)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        gc.callbacks.remove(self._note_collection)
        self._out.close()

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        stack: list[str] = []
        while frame is not None and len(stack) < FRAMES_SHOWN:
            stack.append(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name}")
            frame = frame.f_back
        self._append(" < ".join(stack))

    def _note_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collection_ns = time.thread_time_ns()
        else:
            took_ms = (time.thread_time_ns() - self._collection_ns) / 1e6
            self._append(f"collected generation {info['generation']} for {took_ms:.1f} ms")

    def _append(self, what: str) -> None:
        self._samples.append(f"    {(time.thread_time_ns() - self._cpu_ns) / 1e6:5.1f} ms: {what}")

    def _note_tick(self, late_ns: int, cpu_ns: int) -> None:
        if cpu_ns >= SAMPLED_MIN_NS:
            print(f"{late_ns / 1e6:.0f} ms late, {cpu_ns / 1e6:.1f} ms of CPU:", *self._samples, sep="\n", file=self._out)
        self._samples.clear()
        self._cpu_ns = time.thread_time_ns()


def read_holds(path: Path) -> list[Hold]:
    """All that a meter has recorded so far, oldest first."""
    data = path.read_bytes() if path.exists() else b""
    return [Hold(*fields) for fields in _HOLD.iter_unpack(data[: len(data) - len(data) % _HOLD.size])]


def between(holds: Sequence[Hold], start_ns: int, end_ns: int) -> list[Hold]:
    """The holds that reach into the time from `start_ns` to `end_ns`."""
    return [hold for hold in holds if hold.end_ns >= start_ns and hold.end_ns - hold.late_ns <= end_ns]
