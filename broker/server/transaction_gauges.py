"""The gauges of what this broker asks transaction coordinators, under the names of Kafka's MBean AddPartitionsToTxnManager."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.observability.metrics import Metrics, quantile_ns

if TYPE_CHECKING:
    from broker.transactions.partition_additions import PartitionAdditions

QUANTILES = (0.5, 0.95, 0.99, 0.999)
NS_PER_MS = 1e6


def add_partition_addition_gauges(metrics: Metrics, additions: PartitionAdditions) -> None:
    """Register them. Kafka's VerificationFailureRate is a rate; here it is the number, of which a scraper makes one."""

    def times_ms() -> Iterator[tuple[tuple[str, ...], float]]:
        buckets = additions.times.buckets
        return (((str(quantile),), quantile_ns(buckets, quantile) / NS_PER_MS) for quantile in QUANTILES)

    prefix = "kafka_server_addpartitionstotxnmanager"
    metrics.add_gauge(
        f"{prefix}_verificationfailure_total",
        "partitions that could not be added to a transaction, or were not part of it",
        lambda: additions.failures_count,
    )
    metrics.add_gauge(f"{prefix}_verificationtimems", "how long the first batch of a transaction waited for that", times_ms, ("quantile",))
    metrics.add_gauge(f"{prefix}_verificationtimems_count", "how often a coordinator was asked", lambda: additions.times.requests_count)
