"""Rate: a quantity per second over sampled windows, and the throttle time that brings it back to a quota.

Source: org.apache.kafka.common.metrics.stats.Rate, org.apache.kafka.server.quota.QuotaUtils.
"""

from __future__ import annotations

import math

from broker.security.quotas.sampled_sum import SampledSum

THROTTLE_TIME_MAX_MS = 2**31 - 1
"""What throttle_time_ms can carry. Kafka casts a longer time to an int, which may be negative then."""


class Rate(SampledSum):
    """The sum of the windows divided by their time, which is at least N-1 windows and the begun part of the last one."""

    __slots__ = ()

    def per_second(self, now_ms: int) -> float:
        if now_ms >= self._purge_at_ms:
            self._purge(now_ms)
        return self.total / (self._span_ms(now_ms) / 1000.0)

    def span_ms(self, now_ms: int) -> int:
        """The time in ms by which the sum is divided; at least 1."""
        if now_ms >= self._purge_at_ms:
            self._purge(now_ms)
        return self._span_ms(now_ms)

    def throttle_time_ms(self, limit: float, now_ms: int) -> int:
        """Returns how long nothing may be recorded until the rate is at `limit` per second again: (O - T) / T x the windows' time, in ms;
        0 if it is not above it."""
        if now_ms >= self._purge_at_ms:
            self._purge(now_ms)
        span_ms = self._span_ms(now_ms)
        excess = self.total / (span_ms / 1000.0) - limit
        if not excess > 0:
            return 0
        return rounded_ms(excess / limit * span_ms) if limit > 0 else THROTTLE_TIME_MAX_MS

    def _span_ms(self, now_ms: int) -> int:
        elapsed_ms = now_ms - self._oldest_start_ms
        missing_count = self.windows_count - 1 - elapsed_ms // self.window_ms
        if missing_count > 0:
            elapsed_ms += missing_count * self.window_ms
        return elapsed_ms if elapsed_ms > 0 else 1


def rounded_ms(time_ms: float) -> int:
    """Rounds as Java's Math.round does, and at most to THROTTLE_TIME_MAX_MS."""
    return min(math.floor(time_ms + 0.5), THROTTLE_TIME_MAX_MS) if time_ms < THROTTLE_TIME_MAX_MS else THROTTLE_TIME_MAX_MS
