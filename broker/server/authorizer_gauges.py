"""The gauges of the authorizer: how many ACLs there are, and how often it was asked in a minute (Kafka's plug-in metrics of
StandardAuthorizer).

A rate is that of the last minute before a scrape; where the scrape before is longer ago, or there was none, of the time since then, or
since the start. Kafka counts in two windows of 30 seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from broker.loop.clock import Clock
from broker.observability.metrics import Metrics
from broker.security.authorizer.standard_authorizer import StandardAuthorizer

MINUTE_MS = 60_000
SAMPLE_INTERVAL_MS = 1_000
"""So many scrapes keep no more than 61 samples."""


def add_authorizer_gauges(metrics: Metrics, authorizer: StandardAuthorizer, clock: Clock) -> None:
    """Register them; called once."""
    metrics.add_gauge("kafka_server_plugins_acls_total_count", "access control entries", lambda: len(authorizer.acls))
    for name, documentation, read in (
        ("request", "decisions about rights a minute", lambda: authorizer.allowed_count + authorizer.denied_count),
        ("allowed", "rights granted a minute", lambda: authorizer.allowed_count),
        ("denied", "rights denied a minute", lambda: authorizer.denied_count),
    ):
        rate = RatePerMinute(read, clock)
        metrics.add_gauge(f"kafka_server_plugins_authorization_{name}_rate_per_minute", documentation, rate.read)


class RatePerMinute:
    """How much a counter, which `count` reads, grows in a minute. See the module's docstring."""

    def __init__(self, count: Callable[[], int], clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._samples = deque([(clock.monotonic_ms(), count())])

    def read(self) -> float:
        now_ms, count = self._clock.monotonic_ms(), self._count()
        samples = self._samples
        while len(samples) > 1 and now_ms - samples[1][0] >= MINUTE_MS:
            samples.popleft()
        begun_ms, before = samples[0]
        if now_ms - samples[-1][0] >= SAMPLE_INTERVAL_MS:
            samples.append((now_ms, count))
        return (count - before) * MINUTE_MS / max(now_ms - begun_ms, 1)
