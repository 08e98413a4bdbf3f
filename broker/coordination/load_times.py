"""LoadTimes: how long the last loads of a coordinator's partitions took (the sensor partition-load-time of Kafka's coordinators)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.loop.clock import Clock

SPAN_MS = 60_000
"""Two of Kafka's sample windows. A scraper that comes once a minute sees each load."""

LOADS_MAX = 1_000
"""Of more in that span the last ones count."""


class LoadTimes:
    """Owned by a CoordinatorRuntime."""

    __slots__ = ("_clock", "_loads")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loads: deque[tuple[float, float]] = deque(maxlen=LOADS_MAX)  # when a load ended, and how long it took

    def record(self, start_ms: float) -> None:
        """A load that began then, by the monotonic clock, has ended."""
        now_ms = self._clock.monotonic_ms()
        self._loads.append((now_ms, now_ms - start_ms))

    @property
    def max_ms(self) -> float:
        """The longest of the last SPAN_MS, 0 if there was none (in Kafka not a number)."""
        return max(self._recent(), default=0)

    @property
    def average_ms(self) -> float:
        """As `max_ms`."""
        recent = self._recent()
        return sum(recent) / len(recent) if recent else 0

    def _recent(self) -> list[float]:
        after_ms = self._clock.monotonic_ms() - SPAN_MS
        return [elapsed_ms for end_ms, elapsed_ms in self._loads if end_ms > after_ms]
