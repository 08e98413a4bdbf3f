"""QuotaKeeper: keeps a node's quotas as the committed metadata say, forgets idle clients, and tells what was measured at a scrape.

Source: ClientQuotaMetadataManager; Sensor expiry of org.apache.kafka.common.metrics.Metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.observability.metrics import GaugeSample

if TYPE_CHECKING:
    from broker.loop.clock import Clock, Timer
    from broker.metadata.cluster_state import ClusterState
    from broker.metadata.image import MetadataDelta
    from broker.security.quotas.quota_managers import QuotaManagers
    from broker.security.quotas.quota_metrics import QuotaMetric

log = logging.getLogger("barnabas.quotas")

EXPIRY_INTERVAL_MS = 30_000


class QuotaKeeper:
    """Its timer starts with the first quota."""

    def __init__(self, quotas: QuotaManagers, state: ClusterState, clock: Clock) -> None:
        self._quotas = quotas
        self._state = state
        self._clock = clock
        self._timer: Timer | None = None

    def on_metadata_delta(self, delta: MetadataDelta) -> None:
        """Take over changed quotas. What means nothing here is ignored, as by Kafka."""
        if not delta.changed_client_quotas:
            return
        for quota in self._quotas.follow(delta.changed_client_quotas, self._state.client_quotas):
            log.warning("a stored client quota is ignored entity=%s key=%s", dict(quota.entity), quota.key)
        if self._timer is None:
            self._timer = self._clock.call_later(EXPIRY_INTERVAL_MS, self._expire)

    def samples(self) -> Iterator[GaugeSample]:
        """Yields a gauge for each kind of what is measured."""
        return _samples(list(self._quotas.metrics(self._clock.monotonic_ms())))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._quotas.expire(self._clock.monotonic_ms())
        self._timer = self._clock.call_later(EXPIRY_INTERVAL_MS, self._expire)


def _samples(metrics: list[QuotaMetric]) -> Iterator[GaugeSample]:
    """Named as the usual JMX-exporter rules name Kafka's MBeans."""
    families: dict[tuple[str, tuple[str, ...]], list[tuple[tuple[str, ...], float]]] = {}
    for metric in metrics:
        name = f"kafka_server_{metric.group.lower()}_{metric.name}".replace("-", "_")
        families.setdefault((name, tuple(metric.tags)), []).append((tuple(metric.tags.values()), metric.value))
    for (name, tags), values in families.items():
        labels = tuple(tag.replace("-", "_") for tag in tags)
        yield GaugeSample(name, _DOCUMENTATION.get(name, "as Kafka's metric of this name"), labels, tuple(values))


_DOCUMENTATION = {
    "kafka_server_produce_byte_rate": "bytes a second that the client's Produce requests have",
    "kafka_server_produce_throttle_time": "milliseconds for which its connections were muted, the average of those that were",
    "kafka_server_fetch_byte_rate": "bytes a second that the client's Fetch responses have",
    "kafka_server_fetch_throttle_time": "milliseconds for which its connections were muted, the average of those that were",
    "kafka_server_request_request_time": "percent of one core that the client's requests take of the loop",
    "kafka_server_request_throttle_time": "milliseconds for which its connections were muted, the average of those that were",
    "kafka_server_request_exempt_request_time": "percent of one core that requests take which are never throttled",
    "kafka_server_controllermutation_mutation_rate": "partitions that the client creates and deletes a second",
    "kafka_server_controllermutation_tokens": "partitions that the client may create and delete at once",
    "kafka_server_controllermutation_throttle_time": "milliseconds for which its connections were muted, the average of those that were",
}
