"""ClientSensors: what one kind of quota has measured of each client, and the limit that counts for it.

A client's sensor is found by user and client id in one lookup. That cache falls with each change of a limit; measurements stay as long as
their tags do, as in Kafka. Names of users and client ids are the peers' choice, so their number and length are bounded.

Source: org.apache.kafka.server.quota.ClientQuotaManager, SensorAccess, ClientSensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from broker.security.quotas.quota_limits import QuotaLimits, QuotaScope, QuotaTags
from broker.security.quotas.quota_metrics import THROTTLE_TIME_WINDOW_MS, THROTTLE_TIME_WINDOWS_COUNT
from broker.security.quotas.sampled_sum import Average

UNLIMITED = float(2**63 - 1)
"""The limit of a client that has none (Kafka's Long.MAX_VALUE)."""

IDLE_SENSOR_EXPIRY_MS = 3_600_000
"""A sensor that was not recorded for an hour is dropped (INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS)."""

SENSORS_MAX = 10_000
"""Beyond it the half that was idle longest is dropped. A sensor takes 2 KB. Kafka has no bound."""

CACHED_CLIENTS_MAX = 10_000
"""Pairs of user and client id whose sensor is found in one lookup."""

NAME_SIZE_MAX = 512
"""A longer client id (a header carries 32 KB) is known to its sensor by a digest, and is looked up slowly."""

Meter = TypeVar("Meter")


class ClientSensor(Generic[Meter]):
    """The measurements of the clients with the same tags. `meter` is a Rate, or what a quota's kind measures by."""

    __slots__ = ("last_record_ms", "limit", "meter", "tags", "throttle_time")

    def __init__(self, tags: QuotaTags, meter: Meter, now_ms: int) -> None:
        self.tags = tags
        self.meter = meter
        self.limit = UNLIMITED
        self.last_record_ms = now_ms
        self.throttle_time: Average | None = None
        """Of the throttle times that were not 0."""

    def record_throttle_time(self, throttle_time_ms: int, now_ms: int) -> None:
        if self.throttle_time is None:
            self.throttle_time = Average(THROTTLE_TIME_WINDOW_MS, THROTTLE_TIME_WINDOWS_COUNT)
        self.throttle_time.record(throttle_time_ms, now_ms)


class ClientSensors(Generic[Meter]):
    """Owns the limits and sensors of one kind of quota. `is_enabled` says whether any client has a limit: test it before all else, and
    call nothing while it is False."""

    def __init__(self, make_meter: Callable[[], Meter]) -> None:
        self.is_enabled = False
        self.limits = QuotaLimits()
        self._make_meter = make_meter
        self._by_tags: dict[QuotaTags, ClientSensor[Meter]] = {}
        self._by_client: dict[tuple[str, str], ClientSensor[Meter]] = {}

    def __len__(self) -> int:
        return len(self._by_tags)

    def __iter__(self) -> Iterator[ClientSensor[Meter]]:
        return iter(self._by_tags.values())

    def set_limit(self, scope: QuotaScope, limit: float | None) -> None:
        """Set the limit of `scope`, per second; None removes it. It counts from the next record on, also for what was recorded before."""
        self.limits.set(scope, limit)
        self.is_enabled = not self.limits.is_empty
        self._by_client.clear()

    def limit_of(self, user: str, client_id: str) -> float:
        limit = self.limits.find(self.limits.tags_of(user, client_id))
        return UNLIMITED if limit is None else limit

    def get(self, user: str, client_id: str, now_ms: int) -> ClientSensor[Meter]:
        """Returns the client's sensor, a new one at its first record. `user` is a principal's name without its type."""
        sensor = self._by_client.get((user, client_id))
        if sensor is None:
            sensor = self._find(user, client_id, now_ms)
        sensor.last_record_ms = now_ms
        return sensor

    def expire(self, now_ms: int) -> None:
        """Drop the sensors that were idle for an hour. Call it now and then: Kafka does every 30 s."""
        self._drop([sensor for sensor in self if now_ms - sensor.last_record_ms > IDLE_SENSOR_EXPIRY_MS])

    def _find(self, user: str, client_id: str, now_ms: int) -> ClientSensor[Meter]:
        tags = self.limits.tags_of(user, client_id)
        limit = self.limits.find(tags)
        is_long = len(client_id) > NAME_SIZE_MAX
        if is_long:
            tags = tags._replace(client_id=_shortened(tags.client_id))
        sensor = self._by_tags.get(tags)
        if sensor is None:
            if len(self._by_tags) >= SENSORS_MAX:
                self._drop(sorted(self, key=lambda sensor: sensor.last_record_ms)[: SENSORS_MAX // 2])
            sensor = self._by_tags[tags] = ClientSensor(tags, self._make_meter(), now_ms)
        sensor.limit = UNLIMITED if limit is None else limit
        if not is_long:
            if len(self._by_client) >= CACHED_CLIENTS_MAX:
                self._by_client.clear()
            self._by_client[user, client_id] = sensor
        return sensor

    def _drop(self, sensors: list[ClientSensor[Meter]]) -> None:
        if sensors:
            for sensor in sensors:
                del self._by_tags[sensor.tags]
            self._by_client.clear()


def _shortened(name: str) -> str:
    if len(name) <= NAME_SIZE_MAX:
        return name
    import hashlib  # late: hardly any client has such a name

    return f"{name[:NAME_SIZE_MAX]}...{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"
