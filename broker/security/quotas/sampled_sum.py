"""SampledSum: a sum over sampled windows of time, as Kafka's metrics keep it. Average: the mean over them.

A window is complete when a value comes `window_ms` after its start; then the next sample begins. There are at most one more samples than
windows, in a ring. A sample without a value for all windows' time is emptied. So an event is counted for between N-1 and N windows.

`record` costs two comparisons and three additions. Samples are walked only when one is complete or may have expired, about once a window.

Source: org.apache.kafka.common.metrics.stats.SampledStat, WindowedSum, Avg.
"""

from __future__ import annotations

import math


class SampledSum:
    """The sum of the values of the last `windows_count` windows of `window_ms`. Times are milliseconds of one clock that does not go back.

    `total` is as of the last call that was given a time."""

    __slots__ = (
        "_current",
        "_last_events_ms",
        "_oldest_start_ms",
        "_purge_at_ms",
        "_starts_ms",
        "_values",
        "_window_end_ms",
        "total",
        "window_ms",
        "windows_count",
    )

    def __init__(self, window_ms: int, windows_count: int) -> None:
        self.window_ms = window_ms
        self.windows_count = windows_count
        self.total = 0.0
        self._values: list[float] = []
        self._starts_ms: list[int] = []
        self._last_events_ms: list[int] = []
        self._current = -1
        self._oldest_start_ms = 0
        self._window_end_ms: float = -math.inf
        self._purge_at_ms: float = -math.inf  # not later than the first moment at which a sample expires

    def record(self, value: float, now_ms: int) -> None:
        """Count `value`, which may be negative, at `now_ms`."""
        if now_ms >= self._window_end_ms:
            self._advance(now_ms)
        current = self._current
        self._values[current] += value
        self._last_events_ms[current] = now_ms
        self.total += value

    def measure(self, now_ms: int) -> float:
        """Returns the sum as of `now_ms`."""
        if now_ms >= self._purge_at_ms:
            self._purge(now_ms)
        return self.total

    def _advance(self, now_ms: int) -> None:
        self._current = (self._current + 1) % (self.windows_count + 1)
        self._begin_sample(self._current, now_ms)
        self._summarize()

    def _purge(self, now_ms: int) -> None:
        if not self._values:
            self._advance(now_ms)
            return
        expiry_ms = now_ms - self.windows_count * self.window_ms
        for index, last_event_ms in enumerate(self._last_events_ms):
            if last_event_ms <= expiry_ms:
                self._begin_sample(index, now_ms)
        self._summarize()

    def _begin_sample(self, index: int, now_ms: int) -> None:
        if index == len(self._values):
            self._values.append(0.0)
            self._starts_ms.append(now_ms)
            self._last_events_ms.append(now_ms)
        else:
            self._values[index] = 0.0
            self._starts_ms[index] = self._last_events_ms[index] = now_ms

    def _summarize(self) -> None:
        self.total = sum(self._values)  # from the samples, so that rounding errors do not add up
        self._oldest_start_ms = min(self._starts_ms)
        self._window_end_ms = self._starts_ms[self._current] + self.window_ms
        self._purge_at_ms = min(self._last_events_ms) + self.windows_count * self.window_ms


class Average:
    """The mean of the values of the last windows."""

    __slots__ = ("_count", "_sum")

    def __init__(self, window_ms: int, windows_count: int) -> None:
        self._sum = SampledSum(window_ms, windows_count)
        self._count = SampledSum(window_ms, windows_count)

    def record(self, value: float, now_ms: int) -> None:
        self._sum.record(value, now_ms)
        self._count.record(1, now_ms)

    def measure(self, now_ms: int) -> float:
        """Returns the mean; NaN if there are no values."""
        count = self._count.measure(now_ms)
        return self._sum.measure(now_ms) / count if count else math.nan
