"""ClientQuotaManager: a quota on a rate, of bytes produced or fetched or of request time; and RequestQuotaManager.

How a caller throttles: it tests `is_enabled`, records what a request took, and mutes the connection for the returned time. The response
carries the time. A fetch that would be throttled is taken back (`unrecord`) and answered without records.

Source: org.apache.kafka.server.quota.ClientQuotaManager, kafka.server.ClientRequestQuotaManager.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.security.quotas.client_sensors import UNLIMITED, ClientSensor, ClientSensors
from broker.security.quotas.quota_metrics import (
    REQUEST,
    THROTTLE_TIME_WINDOW_MS,
    THROTTLE_TIME_WINDOWS_COUNT,
    QuotaMetric,
    QuotaType,
    sanitize,
)
from broker.security.quotas.rate import THROTTLE_TIME_MAX_MS, Rate

PERCENT_PER_NANOSECOND = 100.0 / 1_000_000_000
"""Of one thread's time, per second."""


class ClientQuotaManager(ClientSensors[Rate]):
    """`window_ms` and `windows_count` are quota.window.size.seconds and quota.window.num. Throttle times are at most
    `throttle_time_max_ms`."""

    def __init__(
        self, quota_type: QuotaType, *, window_ms: int, windows_count: int, throttle_time_max_ms: int = THROTTLE_TIME_MAX_MS
    ) -> None:
        super().__init__(lambda: Rate(window_ms, windows_count))
        self.quota_type = quota_type
        self._throttle_time_max_ms = throttle_time_max_ms
        self._full_windows_s = (windows_count - 1) * window_ms / 1000

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Counts `value`, and returns the throttle time in ms; 0 while the client is within its limit."""
        sensor = self._by_client.get((user, client_id))
        return self.record_in(self.get(user, client_id, now_ms) if sensor is None else sensor, value, now_ms)

    def record_in(self, sensor: ClientSensor[Rate], value: float, now_ms: int) -> int:
        """As `record`, in the client's sensor."""
        sensor.last_record_ms = now_ms
        rate = sensor.meter
        rate.record(value, now_ms)
        throttle_time_ms = rate.throttle_time_ms(sensor.limit, now_ms)
        return throttle_time_ms if throttle_time_ms <= self._throttle_time_max_ms else self._throttle_time_max_ms

    def record_unchecked(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Counts `value` without throttling: the client's next request sees it."""
        self.get(user, client_id, now_ms).meter.record(value, now_ms)

    def unrecord(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Takes back what `record` has just counted."""
        self.record_unchecked(user, client_id, -value, now_ms)

    def record_throttle_time(self, user: str, client_id: str, throttle_time_ms: int, now_ms: int) -> None:
        """Tells the metrics that a connection of the client is throttled for this time."""
        self.get(user, client_id, now_ms).record_throttle_time(throttle_time_ms, now_ms)

    def max_value_in_window(self, user: str, client_id: str) -> float | None:
        """Returns the largest value that can be recorded without being throttled for certain; None if the client has no limit. A fetch
        reads no more, or a small quota would stop its consumer for ever (KAFKA-9677)."""
        limit = self.limit_of(user, client_id)
        return None if limit == UNLIMITED else limit * self._full_windows_s

    def metrics(self, now_ms: int) -> Iterator[QuotaMetric]:
        """Yields what has been measured of each client."""
        group, measured, _ = self.quota_type
        for sensor in self:
            tags = {"user": sanitize(sensor.tags.user), "client-id": sensor.tags.client_id}
            yield QuotaMetric(group, measured, tags, sensor.meter.per_second(now_ms))
            if sensor.throttle_time is not None:
                yield QuotaMetric(group, "throttle-time", tags, sensor.throttle_time.measure(now_ms))


class RequestQuotaManager(ClientQuotaManager):
    """The quota on request time, in percent of one thread. Throttle times are at most one window.

    Exempt requests, which are never throttled, are only counted."""

    def __init__(self, *, window_ms: int, windows_count: int) -> None:
        super().__init__(REQUEST, window_ms=window_ms, windows_count=windows_count, throttle_time_max_ms=window_ms)
        self.exempt = Rate(THROTTLE_TIME_WINDOW_MS, THROTTLE_TIME_WINDOWS_COUNT)

    def record_time(self, user: str, client_id: str, nanoseconds: int, now_ms: int) -> int:
        """Counts a request's time, and returns the throttle time in ms."""
        return self.record(user, client_id, nanoseconds * PERCENT_PER_NANOSECOND, now_ms)

    def record_exempt_time(self, nanoseconds: int, now_ms: int) -> None:
        self.exempt.record(nanoseconds * PERCENT_PER_NANOSECOND, now_ms)

    def metrics(self, now_ms: int) -> Iterator[QuotaMetric]:
        yield from super().metrics(now_ms)
        yield QuotaMetric(self.quota_type.group, "exempt-request-time", {}, self.exempt.per_second(now_ms))
