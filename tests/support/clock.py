"""A clock that tests step by hand: `advance(ms)` moves both clocks and fires the timers that fall due, in due order.

It satisfies `broker.loop.clock.Clock`. Nothing runs behind the test's back: a callback fires inside `advance`, with
`monotonic_ms()` and `now_ms()` standing at that timer's own due time, and timers armed by callbacks fire too when they
fall due before the end of the step. Two timers due at the same moment fire in the order they were armed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any

from broker.loop.clock import NS_PER_MS, Clock, Timer
from tests.support.doubles import stands_for

WALL_START_MS = 1_750_000_000_000  # June 2025: a plausible wall clock, so that timestamp windows behave as in production


@stands_for(Timer, own=("fire", "due_ms", "is_cancelled", "is_fired"))
class ManualTimer:
    """A pending call of a ManualClock."""

    __slots__ = ("_arguments", "_callback", "due_ms", "is_cancelled", "is_fired")

    def __init__(self, due_ms: float, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.due_ms = due_ms
        self.is_cancelled = False
        self.is_fired = False
        self._callback = callback
        self._arguments = arguments

    def cancel(self) -> None:
        self.is_cancelled = True

    def fire(self) -> None:
        self.is_fired = True
        self._callback(*self._arguments)


@stands_for(Clock, own=("advance", "compute", "jump_wall", "pending_timers", "stall"))
class ManualClock:
    """Stands still until `advance`."""

    def __init__(self, now_ms: int = WALL_START_MS) -> None:
        self._monotonic_ms: float = 0
        self._wall_offset_ms = now_ms
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._armed_count = 0
        self._cpu_ns = 0

    def now_ms(self) -> int:
        return self._wall_offset_ms + int(self._monotonic_ms)

    def now_ns(self) -> int:
        return self.now_ms() * NS_PER_MS

    def monotonic_ms(self) -> int:
        return int(self._monotonic_ms)

    def monotonic_us(self) -> int:
        return int(self._monotonic_ms * 1000)

    def monotonic_ns(self) -> int:
        return self.monotonic_us() * 1_000

    def cpu_ns(self) -> int:
        return self._cpu_ns

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *arguments: Any) -> ManualTimer:
        timer = ManualTimer(self._monotonic_ms + max(0, delay_ms), callback, arguments)
        self._armed_count += 1
        heapq.heappush(self._timers, (timer.due_ms, self._armed_count, timer))
        return timer

    def advance(self, ms: float) -> None:
        """Let `ms` milliseconds pass; a timer due exactly at the end of the step fires."""
        end_ms = self._monotonic_ms + ms
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            if not timer.is_cancelled:
                self._monotonic_ms = max(self._monotonic_ms, due_ms)
                timer.fire()
        self._monotonic_ms = end_ms

    def stall(self, ms: float) -> None:
        """Let `ms` milliseconds pass in which the loop takes no turn: what falls due fires with the next `advance`."""
        self._monotonic_ms += ms

    def compute(self, ms: float) -> None:
        """Let this thread take `ms` milliseconds of CPU time. Nothing fires meanwhile."""
        self._cpu_ns += int(ms * NS_PER_MS)
        self.stall(ms)

    def jump_wall(self, ms: int) -> None:
        """Shift the wall clock alone, as NTP or an operator does; timers do not notice."""
        self._wall_offset_ms += ms

    @property
    def pending_timers(self) -> list[ManualTimer]:
        """Timers armed and neither fired nor cancelled, soonest first."""
        return [timer for _, _, timer in sorted(self._timers, key=lambda entry: entry[:2]) if not timer.is_cancelled]


class LoopTurnsClock(ManualClock):
    """A ManualClock beside a running loop: what is to be called without a delay is called in the loop's next turn, as production does."""

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *arguments: Any) -> Timer:  # type: ignore[override]
        if delay_ms > 0:
            return super().call_later(delay_ms, callback, *arguments)
        return asyncio.get_running_loop().call_soon(callback, *arguments)
