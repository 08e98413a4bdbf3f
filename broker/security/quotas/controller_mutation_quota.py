"""The quota of partitions that a client has the controller create or delete (KIP-599), measured by token buckets.

A request is given its own ControllerMutationQuota. CreateTopics from v6, DeleteTopics from v5 and CreatePartitions from v3 on ask a strict
one, which refuses what comes while no tokens are left; older versions a permissive one, which lets all be done and throttles afterwards.

Source: ControllerMutationQuotaManager, StrictControllerMutationQuota, PermissiveControllerMutationQuota.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.security.quotas.client_sensors import ClientSensor, ClientSensors
from broker.security.quotas.quota_metrics import (
    CONTROLLER_MUTATION,
    THROTTLE_TIME_WINDOW_MS,
    THROTTLE_TIME_WINDOWS_COUNT,
    QuotaMetric,
    sanitize,
)
from broker.security.quotas.rate import Rate
from broker.security.quotas.token_bucket import TokenBucket


class MutationMeter:
    """The tokens that a client has left, and the rate of its mutations, which is a metric only."""

    __slots__ = ("bucket", "rate")

    def __init__(self, window_ms: int, windows_count: int) -> None:
        self.bucket = TokenBucket(window_ms, windows_count)
        self.rate = Rate(THROTTLE_TIME_WINDOW_MS, THROTTLE_TIME_WINDOWS_COUNT)


class ControllerMutationQuota:
    """One request's dealings with the quota; `sensor` is None where no client has a limit. `is_strict` refuses, else it only throttles."""

    __slots__ = ("_is_strict", "_sensor", "_throttle_time_ms", "_throttled_ms")

    def __init__(self, sensor: ClientSensor[MutationMeter] | None, *, is_strict: bool) -> None:
        self._sensor = sensor
        self._is_strict = is_strict
        self._throttle_time_ms = 0
        self._throttled_ms = 0

    @property
    def is_exceeded(self) -> bool:
        """Whether mutations have been refused."""
        return self._is_strict and self._throttle_time_ms > 0

    def record(self, partitions_count: float, now_ms: int) -> bool:
        """Take the tokens of that many partitions. Returns False for what must be refused with THROTTLING_QUOTA_EXCEEDED: nothing is taken
        then."""
        sensor = self._sensor
        if sensor is None:
            return True
        meter, limit = sensor.meter, sensor.limit
        is_refused = self._is_strict and meter.bucket.tokens(limit, now_ms) < 0
        if not is_refused:
            meter.bucket.record(partitions_count, limit, now_ms)
            meter.rate.record(partitions_count, now_ms)
        if is_refused or (not self._is_strict and meter.bucket.tokens(limit, now_ms) < 0):
            self._throttle_time_ms, self._throttled_ms = meter.bucket.throttle_time_ms(limit, now_ms), now_ms
        return not is_refused

    def throttle_time_ms(self, now_ms: int) -> int:
        """Returns what is left of the throttle time: a request may be answered long after it was recorded."""
        return max(0, self._throttle_time_ms - (now_ms - self._throttled_ms)) if self._throttle_time_ms else 0


class ControllerMutationQuotaManager(ClientSensors[MutationMeter]):
    """`window_ms` and `windows_count` are controller.quota.window.size.seconds and controller.quota.window.num."""

    def __init__(self, *, window_ms: int, windows_count: int) -> None:
        super().__init__(lambda: MutationMeter(window_ms, windows_count))

    def quota_of(self, user: str, client_id: str, now_ms: int, *, is_strict: bool) -> ControllerMutationQuota:
        """Returns the quota for one request."""
        sensor = self.get(user, client_id, now_ms) if self.is_enabled else None
        return ControllerMutationQuota(sensor, is_strict=is_strict)

    def metrics(self, now_ms: int) -> Iterator[QuotaMetric]:
        """Yields what has been measured of each client."""
        group, measured, _ = CONTROLLER_MUTATION
        for sensor in self:
            tags = {"user": sanitize(sensor.tags.user), "client-id": sensor.tags.client_id}
            yield QuotaMetric(group, "mutation-rate", tags, sensor.meter.rate.per_second(now_ms))
            yield QuotaMetric(group, measured, tags, sensor.meter.bucket.tokens(sensor.limit, now_ms))
            if sensor.throttle_time is not None:
                yield QuotaMetric(group, "throttle-time", tags, sensor.throttle_time.measure(now_ms))
