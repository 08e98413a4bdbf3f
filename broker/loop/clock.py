"""Time, injected: the wall clock for timestamps in records, the monotonic clock for timeouts, and timers.

Nothing else in broker/ reads a clock. Tests step `tests.support.clock.ManualClock` instead of sleeping.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from typing import Any, Protocol

NS_PER_MS = 1_000_000


class Timer(Protocol):
    """A pending call; `cancel` is idempotent and safe after the call was made."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The broker's only source of time."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the Unix epoch. May jump; only record timestamps and retention use it."""

    def now_ns(self) -> int:
        """The same in nanoseconds, for code that runs for every request: the system's clock calls no Python code for it."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; for every timeout and lease."""

    def monotonic_us(self) -> int:
        """The same in microseconds, for waits shorter than a timer's."""

    def monotonic_ns(self) -> int:
        """The same in nanoseconds, for code that runs for every request."""

    def cpu_ns(self) -> int:
        """Nanoseconds of CPU time that this thread has taken."""

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *arguments: Any) -> Timer:
        """Call `callback(*arguments)` on the loop after `delay_ms` of monotonic time."""


def wall_clock_ms(clock: Clock, monotonic_ms: int) -> int:
    """A time of the monotonic clock, which timeouts need, as one of the wall clock, which files and clients are told."""
    return monotonic_ms + clock.now_ms() - clock.monotonic_ms()


class SystemClock:
    """The machine's clocks and the running loop's timers."""

    __slots__ = ("_context", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = contextvars.copy_context()
        """The context of all timers. The broker has no context variables; without it the loop would copy a context for each timer."""

    now_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)
    cpu_ns = staticmethod(time.thread_time_ns)

    def now_ms(self) -> int:
        return time.time_ns() // NS_PER_MS

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // NS_PER_MS

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *arguments: Any) -> Timer:
        return self._loop.call_later(delay_ms / 1000, callback, *arguments, context=self._context)


async def pause(clock: Clock, delay_ms: float) -> None:
    """Wait for `delay_ms` of the clock's monotonic time."""
    over = asyncio.Event()
    timer = clock.call_later(delay_ms, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
