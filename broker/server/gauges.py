"""The gauges of a running node, computed from its parts at a scrape. They have the names that the usual JMX-exporter rules give Kafka's
MBeans.

server.py and client_server.py call `add_cluster_gauges` and `add_broker_gauges` once; nothing is computed before a scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker.observability.metrics import Metrics, Piecewise
from broker.quorum.raft_state import Candidate, Follower, Prospective, Resigned
from broker.server.node_gauges import SinceLastScrape
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from broker.groups.coordinator import GroupCoordinator
    from broker.loop.clock import Clock
    from broker.loop.recent_times import RecentTimes
    from broker.metadata.cluster_state import ElectionCounts
    from broker.metadata.image import PartitionImage
    from broker.metadata.metadata_cache import MetadataCache
    from broker.network.peer_traffic import PeerTraffic
    from broker.quorum.raft import Raft
    from broker.replication.fetcher.fetcher_control import ReplicaLag
    from broker.replication.partition import Partition
    from broker.replication.quotas import ReplicationQuotas
    from broker.replication.replica_manager import ReplicaManager

NO_LEADER = -1
PARTITION_LABELS = ("topic", "partition")
UNKNOWN = -1
GROUP_STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")


class Following(Protocol):
    """The figures of this broker's replica fetchers: a part of InterBroker."""

    def replica_lags(self) -> Iterable[ReplicaLag]: ...

    @property
    def failed_partitions_count(self) -> int: ...


def add_broker_gauges(
    metrics: Metrics,
    *,
    replica_manager: ReplicaManager,
    group_coordinator: GroupCoordinator,
    metadata: MetadataCache,
    following: Following,
    clock: Clock,
    late_transaction_ms: int,
) -> None:
    """Register the gauges of a broker. A transaction is late when it is open for longer than `late_transaction_ms`."""
    _add_log_gauges(metrics, replica_manager)
    _add_producer_gauges(metrics, replica_manager, clock, late_transaction_ms)
    _add_replica_gauges(metrics, replica_manager, metadata)
    _add_isr_counters(metrics, replica_manager)
    _add_quota_gauges(metrics, replica_manager.quotas)
    _add_fetcher_gauges(metrics, following)
    _add_move_gauge(metrics, replica_manager)
    _add_group_gauges(metrics, group_coordinator)


def add_brokers_gauge(metrics: Metrics, *, metadata: MetadataCache, raft: Raft) -> None:
    """Register what kafka_exporter calls kafka_brokers. The active controller tells it, so that the sum over all nodes is right."""

    def count() -> list[tuple[tuple[str, ...], float]]:
        return [((), sum(not broker.is_fenced for broker in metadata.brokers.values()))] if raft.is_leader else []

    metrics.add_gauge("kafka_brokers", "brokers that are not fenced, by the active controller", count)


def add_quorum_rates(metrics: Metrics, *, raft: Raft, clock: Clock, commit_times: RecentTimes, traffic: PeerTraffic | None) -> None:
    """Register how fast this node's part of the metadata log moves. `traffic` is None for a node that has no others."""
    log_end = SinceLastScrape(clock, lambda: raft.log.end_offset)

    def records_per_second(*, is_leader: bool) -> float:
        """The log's growth counts for the role that the node has now."""
        return max(log_end.per_ms() * 1_000, 0.0) if raft.is_leader is is_leader else 0.0

    prefix = "kafka_server_raftmetrics"
    for name, documentation, read in (
        ("append_records_rate", "records a second that this node appends as the leader", partial(records_per_second, is_leader=True)),
        ("fetch_records_rate", "records a second that this node fetches from the leader", partial(records_per_second, is_leader=False)),
        (
            "commit_latency_avg",
            "milliseconds until the quorum has a record, on average in the last minute",
            lambda: commit_times.average_ms,
        ),
        ("commit_latency_max", "milliseconds until the quorum has a record, at most in the last minute", lambda: commit_times.max_ms),
    ):
        metrics.add_gauge(f"{prefix}_{name}", documentation, read)
    for name, documentation, attribute in (
        ("incoming_byte", "bytes of answers to this node from others of the quorum", "bytes_in"),
        ("outgoing_byte", "bytes of requests from this node to others of the quorum", "bytes_out"),
        ("request", "requests from this node to others of the quorum", "requests_count"),
        ("response", "answers to these", "responses_count"),
    ):
        metrics.add_gauge(f"kafka_server_raftchannelmetrics_{name}_total", documentation, partial(getattr, traffic, attribute, 0))


def add_cluster_gauges(metrics: Metrics, *, metadata: MetadataCache, raft: Raft) -> None:
    """Register the gauges of the whole cluster, which every node knows, and of this node's part in the metadata quorum."""
    _add_controller_gauges(metrics, metadata, raft)
    _add_election_counters(metrics, metadata.state.elections)
    _add_quorum_gauges(metrics, raft)


def _add_log_gauges(metrics: Metrics, replica_manager: ReplicaManager) -> None:
    def of_each(read: Callable[[Partition], int]) -> Callable[[], Piecewise]:
        return lambda: Piecewise(((each.topic, str(each.partition)), read(each)) for each in replica_manager.each_partition())

    for name, documentation, read in (
        ("size", "bytes of the log's segments", lambda each: each.log.size_bytes),
        ("numlogsegments", "segments of the log", lambda each: len(each.log.segments)),
        ("logstartoffset", "first offset of the log", lambda each: each.log.log_start_offset),
        ("logendoffset", "next offset of the log", lambda each: each.log.log_end_offset),
    ):
        metrics.add_gauge(f"kafka_log_log_{name}", documentation, of_each(read), PARTITION_LABELS)


def _add_replica_gauges(metrics: Metrics, replica_manager: ReplicaManager, metadata: MetadataCache) -> None:
    def count(is_counted: Callable[[Partition], bool]) -> Callable[[], Piecewise]:
        return lambda: Piecewise(map(is_counted, replica_manager.each_partition()), sum)

    for name, documentation, is_counted in (
        ("partitioncount", "partitions hosted here", lambda _each: True),
        ("leadercount", "partitions led from here", lambda each: each.is_leader),
        (
            "underreplicatedpartitions",
            "led partitions that lack a replica in sync",
            lambda each: each.is_leader and each.is_under_replicated,
        ),
        ("underminisrpartitioncount", "led partitions below min.insync.replicas", lambda each: each.is_leader and each.is_under_min_isr),
        ("atminisrpartitioncount", "led partitions with just min.insync.replicas", lambda each: each.is_leader and each.is_at_min_isr),
        ("offlinereplicacount", "replicas whose log directory failed", lambda each: each.is_offline),
    ):
        metrics.add_gauge(f"kafka_server_replicamanager_{name}", documentation, count(is_counted))
    metrics.add_gauge(
        "kafka_server_replicamanager_reassigningpartitions",
        "led partitions whose replicas are being replaced",
        lambda: sum(
            1 for each in _partitions(metadata) if each.leader == metadata.node_id and (each.adding_replicas or each.removing_replicas)
        ),
    )
    metrics.add_gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "requests that wait",
        lambda: [
            (("Produce",), replica_manager.produce_purgatory.size),
            (("Fetch",), replica_manager.fetch_purgatory.size),
            (("DeleteRecords",), replica_manager.delete_records_purgatory.size),
        ],
        ("delayedoperation",),
    )


def _add_producer_gauges(metrics: Metrics, replica_manager: ReplicaManager, clock: Clock, late_ms: int) -> None:
    def late_count() -> Piecewise:
        before_ms = clock.now_ms() - late_ms
        late = (each.is_leader and each.log.producers.has_late_transaction(before_ms) for each in replica_manager.each_partition())
        return Piecewise(late, sum)

    prefix = "kafka_server_replicamanager"
    metrics.add_gauge(
        f"{prefix}_partitionswithlatetransactionscount",
        "led partitions with a transaction that was open for longer than transaction.max.timeout.ms and five minutes",
        late_count,
    )
    metrics.add_gauge(
        f"{prefix}_produceridcount",
        "producer ids that partitions here remember, counted in each",
        lambda: Piecewise((len(each.log.producers.producers) for each in replica_manager.each_partition() if not each.is_offline), sum),
    )


def _add_isr_counters(metrics: Metrics, replica_manager: ReplicaManager) -> None:
    counts = replica_manager.isr_counts
    prefix = "kafka_server_replicamanager"
    metrics.add_gauge(f"{prefix}_isrshrinks_total", "ISRs that became smaller", lambda: counts.shrinks)
    metrics.add_gauge(f"{prefix}_isrexpands_total", "ISRs that became larger", lambda: counts.expands)
    metrics.add_gauge(f"{prefix}_failedisrupdates_total", "ISR changes that the controller refused", lambda: counts.failed_updates)


def _add_quota_gauges(metrics: Metrics, quotas: ReplicationQuotas) -> None:
    for name, quota, documentation in (
        ("leaderreplication", quotas.leader, "bytes a second that leaders here send to throttled replicas"),
        ("followerreplication", quotas.follower, "bytes a second that throttled replicas here fetch"),
        ("alterlogdirsreplication", quotas.moves, "bytes a second that are copied to other log directories"),
    ):
        metrics.add_gauge(f"kafka_server_{name}_byte_rate", documentation, partial(getattr, quota.rate, "per_second"))


def _add_fetcher_gauges(metrics: Metrics, following: Following) -> None:
    def by_partition() -> Iterator[tuple[tuple[str, ...], float]]:
        return (((lag.fetcher_name, lag.topic, str(lag.partition)), lag.records_count) for lag in following.replica_lags())

    metrics.add_gauge(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "records that a replica here lacks of what its leader has committed",
        by_partition,
        ("clientid", *PARTITION_LABELS),
    )
    prefix, labels = "kafka_server_replicafetchermanager", ("clientid",)
    metrics.add_gauge(
        f"{prefix}_maxlag",
        "the largest lag of a replica here",
        lambda: [(("Replica",), max((lag.records_count for lag in following.replica_lags()), default=0))],
        labels,
    )
    metrics.add_gauge(
        f"{prefix}_failedpartitionscount",
        "replicas here that are not fetched because of an error",
        lambda: [(("Replica",), following.failed_partitions_count)],
        labels,
    )


def _add_move_gauge(metrics: Metrics, replica_manager: ReplicaManager) -> None:
    metrics.add_gauge(
        "kafka_server_replicaalterlogdirsmanager_maxlag",
        "the largest lag of a copy of a replica that moves to another log directory",
        lambda: [(("ReplicaAlterLogDirs",), replica_manager.moves_lag_max)],
        ("clientid",),
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


def _partitions(metadata: MetadataCache) -> Iterator[PartitionImage]:
    return (partition for topic in metadata.topics.values() for partition in topic.partitions)


def _add_controller_gauges(metrics: Metrics, metadata: MetadataCache, raft: Raft) -> None:
    def brokers_count(*, is_fenced: bool) -> int:
        return sum(broker.is_fenced is is_fenced for broker in metadata.brokers.values())

    def partitions_count(is_counted: Callable[[PartitionImage], bool]) -> Callable[[], float]:
        return lambda: sum(map(is_counted, _partitions(metadata)))

    for name, documentation, read in (
        ("activecontrollercount", "1 on the active controller", lambda: int(raft.is_leader)),
        ("activebrokercount", "brokers that are not fenced", lambda: brokers_count(is_fenced=False)),
        ("fencedbrokercount", "registered brokers that are fenced", lambda: brokers_count(is_fenced=True)),
        (
            "controlledshutdownbrokercount",
            "brokers that are about to stop",
            lambda: sum(broker.is_in_controlled_shutdown for broker in metadata.brokers.values()),
        ),
        ("globaltopiccount", "topics of the cluster", lambda: len(metadata.topics)),
        ("globalpartitioncount", "partitions of the cluster", lambda: metadata.state.partitions_count),
        ("offlinepartitionscount", "partitions without a leader", partitions_count(lambda each: each.leader == NO_LEADER)),
        (
            "preferredreplicaimbalancecount",
            "partitions that are not led by their first replica",
            partitions_count(lambda each: each.leader != each.replicas[0]),
        ),
    ):
        metrics.add_gauge(f"kafka_controller_kafkacontroller_{name}", documentation, read)


def _add_election_counters(metrics: Metrics, elections: ElectionCounts) -> None:
    """Counts elections from now on, without those that this node replayed at its start. Every node counts all of them: do not sum over
    nodes.

    `leaderelectionrateandtimems_count` is a name of Kafka with ZooKeeper: with KRaft it counts no clean elections."""
    known = elections.elected, elections.unclean, elections.from_eligible_replicas
    prefix = "kafka_controller_controllerstats"
    metrics.add_gauge(
        f"{prefix}_leaderelectionrateandtimems_count", "partitions that got another leader", lambda: elections.elected - known[0]
    )
    metrics.add_gauge(f"{prefix}_uncleanleaderelections_total", "of these, not in the ISR", lambda: elections.unclean - known[1])
    metrics.add_gauge(
        f"{prefix}_electionfromeligibleleaderreplicas_total",
        "of these, from the eligible leader replicas",
        lambda: elections.from_eligible_replicas - known[2],
    )


def _add_quorum_gauges(metrics: Metrics, raft: Raft) -> None:
    def high_watermark() -> int:
        return UNKNOWN if raft.high_watermark is None else raft.high_watermark

    def vote() -> int:
        voted = raft.state.vote.voted
        return raft.config.me.node_id if raft.is_leader else UNKNOWN if voted is None else voted.node_id

    def observers_count() -> int:
        leadership = raft.state.leadership
        return 0 if leadership is None else len(leadership.observers)

    prefix = "kafka_server_raftmetrics"
    metrics.add_gauge(
        f"{prefix}_current_state", "this node's role in the metadata quorum", lambda: [((_role(raft),), 1)], ("current_state",)
    )
    for name, documentation, read in (
        ("current_leader", "the quorum's leader, -1 while it is not known", lambda: raft.leader_id),
        ("current_epoch", "the quorum's epoch", lambda: raft.epoch),
        ("current_vote", "whom this node voted for in it, -1 for nobody", vote),
        ("high_watermark", "how far the metadata log is committed", high_watermark),
        ("log_end_offset", "where the metadata log ends here", lambda: raft.log.end_offset),
        ("log_end_epoch", "the epoch of its last record", lambda: raft.log.last_epoch),
        ("number_of_voters", "voters of the quorum", lambda: len(raft.voters)),
        ("number_of_observers", "observers that the leader knows", observers_count),
    ):
        metrics.add_gauge(f"{prefix}_{name}", documentation, read)


def _role(raft: Raft) -> str:
    """The role in Kafka's words (KafkaRaftMetrics)."""
    role = raft.state.role
    has_voted = raft.state.vote.voted is not None
    if raft.is_leader:
        return "leader"
    if isinstance(role, Candidate):
        return "candidate"
    if isinstance(role, Prospective):
        return "prospective-voted" if has_voted else "prospective"
    if isinstance(role, Follower):
        return "follower" if raft.is_voter else "observer"
    if isinstance(role, Resigned):
        return "resigned"
    return "unattached-voted" if has_voted else "unattached"
