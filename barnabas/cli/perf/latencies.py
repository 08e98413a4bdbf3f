"""Latencies of many records in little memory: each is counted with three significant digits."""

from __future__ import annotations

from collections import Counter
from typing import Any

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
EXACT_BELOW_US = 1_000


class Latencies:
    """Owns the counts. A quantile is at most half a percent beside the exact one."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._sum_us = 0
        self._max_us = 0

    def add(self, latency_s: float) -> None:
        latency_us = max(int(latency_s * 1_000_000), 0)
        self._sum_us += latency_us
        self._max_us = max(self._max_us, latency_us)
        if latency_us >= EXACT_BELOW_US:
            step = 10 ** (len(str(latency_us)) - 3)
            latency_us = (latency_us + step // 2) // step * step
        self._counts[latency_us] += 1

    def quantile_ms(self, quantile: float) -> float | None:
        """The least latency that this share of all does not exceed; None without any."""
        seen, wanted = 0, quantile * self._counts.total()
        for latency_us in sorted(self._counts):
            seen += self._counts[latency_us]
            if seen >= wanted:
                return min(latency_us, self._max_us) / 1_000
        return None

    def summary_ms(self) -> dict[str, Any] | None:
        """None without any."""
        count = self._counts.total()
        if not count:
            return None
        quantiles = {name: self.quantile_ms(quantile) for name, quantile in QUANTILES.items()}
        return {"average": round(self._sum_us / count / 1_000, 3), **quantiles, "max": self._max_us / 1_000}
