"""The gauges of a running broker: what a scrape asks its collaborators. Names as the usual JMX-exporter rules name Kafka's MBeans.

server.py calls `add_broker_gauges` once; nothing is computed until someone scrapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from broker.metrics import Metrics
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from broker.groups.coordinator import GroupCoordinator
    from broker.metadata.metadata_cache import MetadataCache
    from broker.replication.partition import Partition
    from broker.replication.replica_manager import ReplicaManager

NO_LEADER = -1
PARTITION_LABELS = ("topic", "partition")
GROUP_STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")


def add_broker_gauges(
    metrics: Metrics, *, replica_manager: ReplicaManager, group_coordinator: GroupCoordinator, metadata: MetadataCache
) -> None:
    """Register every gauge of one broker."""
    _add_log_gauges(metrics, replica_manager)
    _add_replica_gauges(metrics, replica_manager)
    _add_group_gauges(metrics, group_coordinator)
    _add_controller_gauges(metrics, metadata)


def _add_log_gauges(metrics: Metrics, replica_manager: ReplicaManager) -> None:
    def of_each(read: Callable[[Partition], int]) -> Callable[[], Iterator[tuple[tuple[str, ...], float]]]:
        return lambda: (((each.topic, str(each.partition)), read(each)) for each in replica_manager.partitions())

    for name, documentation, read in (
        ("size", "bytes of the log's segments", lambda each: each.log.size_bytes),
        ("numlogsegments", "segments of the log", lambda each: len(each.log.segments)),
        ("logstartoffset", "first offset of the log", lambda each: each.log.log_start_offset),
        ("logendoffset", "next offset of the log", lambda each: each.log.log_end_offset),
    ):
        metrics.add_gauge(f"kafka_log_log_{name}", documentation, of_each(read), PARTITION_LABELS)


def _add_replica_gauges(metrics: Metrics, replica_manager: ReplicaManager) -> None:
    def count(is_counted: Callable[[Partition], bool]) -> Callable[[], float]:
        return lambda: sum(1 for each in replica_manager.partitions() if is_counted(each))

    for name, documentation, is_counted in (
        ("partitioncount", "partitions hosted here", lambda _each: True),
        ("leadercount", "partitions led from here", lambda each: each.is_leader),
        (
            "underreplicatedpartitions",
            "led partitions that lack a replica in sync",
            lambda each: each.is_leader and each.is_under_replicated,
        ),
        ("underminisrpartitioncount", "led partitions below min.insync.replicas", lambda each: each.is_leader and each.is_under_min_isr),
        ("offlinereplicacount", "replicas whose log directory failed", lambda each: each.is_offline),
    ):
        metrics.add_gauge(f"kafka_server_replicamanager_{name}", documentation, count(is_counted))
    metrics.add_gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "requests that wait",
        lambda: [(("Produce",), replica_manager.produce_purgatory.size), (("Fetch",), replica_manager.fetch_purgatory.size)],
        ("delayedoperation",),
    )


def _add_group_gauges(metrics: Metrics, coordinator: GroupCoordinator) -> None:
    def by_state() -> dict[str, int]:
        try:
            return coordinator.count_states()
        except KafkaError:
            return {}  # not the coordinator, or still loading: no groups to speak of yet

    def count_in(state: str) -> int:
        return by_state().get(state, 0)

    metrics.add_gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "groups", lambda: sum(by_state().values()))
    for state in GROUP_STATES:
        metrics.add_gauge(
            f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.lower()}",
            f"groups in state {state}",
            partial(count_in, state),
        )


def _add_controller_gauges(metrics: Metrics, metadata: MetadataCache) -> None:
    def partitions_count(*, without_leader_only: bool) -> int:
        return sum(
            1
            for topic in metadata.topics.values()
            for partition in topic.partitions
            if not without_leader_only or partition.leader == NO_LEADER
        )

    prefix = "kafka_controller_kafkacontroller"
    metrics.add_gauge(
        f"{prefix}_activecontrollercount", "1 on the active controller", lambda: int(metadata.controller_id == metadata.node_id)
    )
    metrics.add_gauge(f"{prefix}_globaltopiccount", "topics of the cluster", lambda: len(metadata.topics))
    metrics.add_gauge(f"{prefix}_globalpartitioncount", "partitions of the cluster", lambda: partitions_count(without_leader_only=False))
    metrics.add_gauge(f"{prefix}_offlinepartitionscount", "partitions without a leader", lambda: partitions_count(without_leader_only=True))
