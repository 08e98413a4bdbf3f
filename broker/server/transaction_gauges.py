"""The gauges of transactions: of what this broker asks transaction coordinators, under the names of Kafka's MBean
AddPartitionsToTxnManager; of what it coordinates, under the names of TransactionMarkerChannelManager and transaction-coordinator-metrics,
and under names of its own where Kafka has none.

Nothing is computed before a scrape. A scrape does not look at each transactional id, only at the transactions that are open.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.observability.metrics import Metrics, quantile_ns
from broker.transactions.state import TransactionState

if TYPE_CHECKING:
    from broker.loop.clock import Clock
    from broker.transactions.coordinator import TransactionCoordinator
    from broker.transactions.marker_channels import MarkerChannels
    from broker.transactions.partition_additions import PartitionAdditions

QUANTILES = (0.5, 0.95, 0.99, 0.999)
NS_PER_MS = 1e6


def add_partition_addition_gauges(metrics: Metrics, additions: PartitionAdditions) -> None:
    """Register those of questions to coordinators."""

    def times_ms() -> Iterator[tuple[tuple[str, ...], float]]:
        buckets = additions.times.buckets
        return (((str(quantile),), quantile_ns(buckets, quantile) / NS_PER_MS) for quantile in QUANTILES)

    prefix = "kafka_server_addpartitionstotxnmanager"
    metrics.add_gauge(
        f"{prefix}_verificationfailurerate_count",
        "partitions that could not be added to a transaction, or were not part of it",
        lambda: additions.failures_count,
    )
    metrics.add_gauge(f"{prefix}_verificationtimems", "how long the first batch of a transaction waited for that", times_ms, ("quantile",))
    metrics.add_gauge(f"{prefix}_verificationtimems_count", "how often a coordinator was asked", lambda: additions.times.requests_count)


def add_transaction_gauges(metrics: Metrics, coordinator: TransactionCoordinator, channels: MarkerChannels, clock: Clock) -> None:
    """Register those of what this broker coordinates."""
    _add_kafka_gauges(metrics, coordinator, channels)

    def ids_by_state() -> list[tuple[tuple[str, ...], float]]:
        counts = coordinator.count_states()
        return [((state.label,), counts[state]) for state in TransactionState]

    def oldest_age_ms() -> int:
        start_ms = coordinator.find_oldest_start_ms()
        return 0 if start_ms is None else max(clock.now_ms() - start_ms, 0)

    metrics.add_gauge("barnabas_transactional_ids", "transactional ids coordinated here", ids_by_state, ("state",))
    metrics.add_gauge(
        "barnabas_oldest_transaction_age_ms", "since the oldest open transaction coordinated here began, 0 without one", oldest_age_ms
    )
    metrics.add_gauge(
        "barnabas_waiting_transaction_markers",
        "ends of transactions coordinated here that this broker has not written yet",
        lambda: [((str(node_id),), count) for node_id, count in channels.waiting_by_broker().items()],
        ("broker",),
    )


def _add_kafka_gauges(metrics: Metrics, coordinator: TransactionCoordinator, channels: MarkerChannels) -> None:
    prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
    metrics.add_gauge(
        f"{prefix}_unknowndestinationqueuesize",
        "ends of transactions that wait for a leader of their partition",
        lambda: channels.unknown_destination_count,
    )
    metrics.add_gauge(
        f"{prefix}_logappendretryqueuesize",
        "complete transactions that could not be written to __transaction_state yet",
        coordinator.count_retried_completions,
    )
    prefix = "kafka_server_transaction_coordinator_metrics_partition_load_time"
    metrics.add_gauge(f"{prefix}_max", "milliseconds of the longest load in the last minute", lambda: coordinator.load_times.max_ms)
    metrics.add_gauge(f"{prefix}_avg", "milliseconds of the average load in the last minute", lambda: coordinator.load_times.average_ms)
