"""RecentTimes: how long something took lately, on average and at most: the loads of a coordinator's partitions, the commits of metadata.
The counterpart of Kafka's sensors with Avg and Max."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.loop.clock import Clock

SPAN_MS = 60_000
"""Two of Kafka's sample windows. A scraper that comes once a minute sees each time."""

TIMES_MAX = 1_000
"""Of more in that span the last ones count."""


class RecentTimes:
    """Owned by what it measures."""

    __slots__ = ("_clock", "_times")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: deque[tuple[float, float]] = deque(maxlen=TIMES_MAX)  # when it ended, and how long it took

    def record(self, start_ms: float) -> None:
        """What began then, by the monotonic clock, has ended."""
        now_ms = self._clock.monotonic_ms()
        self._times.append((now_ms, now_ms - start_ms))

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
        return [elapsed_ms for end_ms, elapsed_ms in self._times if end_ms > after_ms]
