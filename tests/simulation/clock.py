"""A simulated loop's time as the broker's Clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker.loop.clock import NS_PER_MS, Clock
from tests.simulation.loop import SimulatedLoop
from tests.support.clock import WALL_START_MS
from tests.support.doubles import stands_for


@stands_for(Clock)
class LoopClock:
    """`offset_ms` is how far this node's wall clock is from the true time."""

    def __init__(self, loop: SimulatedLoop, *, offset_ms: int = 0) -> None:
        self._loop = loop
        self._wall_start_ms = WALL_START_MS + offset_ms

    def now_ms(self) -> int:
        return self._wall_start_ms + self.monotonic_ms()

    def now_ns(self) -> int:
        return self.now_ms() * NS_PER_MS

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def monotonic_us(self) -> int:
        return self._loop.now_us

    def monotonic_ns(self) -> int:
        return self._loop.now_us * 1_000

    def cpu_ns(self) -> int:
        """As of computing that takes no time."""
        return 0

    def call_later(self, delay_ms: float, callback: Callable[..., Any], *arguments: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback, *arguments)
