"""The gauges of each partition that this broker leads, under the names of Kafka's MBean kafka.cluster:type=Partition.

Kafka has them for replicas that follow, too, with the value 0: the sums are the same. The loop copies the numbers, some hundred partitions
a turn; the thread that renders makes the gauges of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.observability.metrics import GaugeSample, Metrics, Piecewise

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from broker.replication.replica_manager import ReplicaManager

LABELS = ("topic", "partition")
GAUGES = (
    ("replicascount", "replicas"),
    ("insyncreplicascount", "replicas in sync"),
    ("underreplicated", "1 if a replica is not in sync"),
    ("underminisr", "1 if the ISR is smaller than min.insync.replicas"),
    ("atminisr", "1 if the ISR is just min.insync.replicas"),
    ("laststableoffsetlag", "records of open transactions, and what followed them, below the high watermark"),
)


def add_partition_gauges(metrics: Metrics, replica_manager: ReplicaManager) -> None:
    metrics.add_collector(lambda: Piecewise((_facts(each) for each in replica_manager.each_partition() if each.is_leader), _samples))


def _facts(partition: Partition) -> tuple[str, int, tuple[int, ...]]:
    """The topic, the partition, and its values in the order of GAUGES."""
    replicas_count, in_sync_count, min_isr, log = len(partition.replicas), len(partition.isr), partition.in_sync.min_isr, partition.log
    values = (
        replicas_count,
        in_sync_count,
        int(in_sync_count < replicas_count),
        int(in_sync_count < min_isr),
        int(in_sync_count == min_isr),
        log.high_watermark - log.last_stable_offset,
    )
    return partition.topic, partition.partition, values


def _samples(rows: list[tuple[str, int, tuple[int, ...]]]) -> Iterator[GaugeSample]:
    labels = [(topic, str(partition)) for topic, partition, _ in rows]
    for index, (name, documentation) in enumerate(GAUGES):
        values = tuple(zip(labels, (each[index] for _, _, each in rows), strict=True))
        yield GaugeSample(f"kafka_cluster_partition_{name}", f"{documentation}, of a led partition", LABELS, values)
