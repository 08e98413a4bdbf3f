"""The values a fetch is made of: what is asked (FetchParams, FetchTarget) and what was read (PartitionRead).

Also the part of a partition that fetches use (FetchablePartition), and the part of a fetch session that a partition uses
(PartitionWatcher).

Source: org.apache.kafka.server.storage.log FetchParams, FetchPartitionData; FetchRequest.PartitionData.
"""

from __future__ import annotations

from collections.abc import Container, Sized
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from protocol.errors import ErrorCode
from protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from broker.observability.metrics import BrokerTopicMetrics
    from broker.replication.partition_role import PartitionRole
    from broker.replication.purgatory import DelayedOperation
    from broker.replication.quotas import ReplicationQuota
    from storage.log import Log
    from storage.transaction_index import AbortedTransaction

NO_EPOCH = -1  # in a request: "do not check"
CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
UNKNOWN_OFFSET = -1
NO_REPLICA = -1
EMPTY_RECORDS: Final = b""  # zero-length, never null: Java's client takes null records for an error


class FetchIsolation(IntEnum):
    """How far a fetch may read."""

    LOG_END = 0
    HIGH_WATERMARK = 1
    TXN_COMMITTED = 2


class FetchParams:
    """The parameters that all partitions of one fetch share. The handler has clamped the sizes."""

    __slots__ = ("fetch_only_leader", "isolation", "max_bytes", "max_wait_ms", "min_bytes", "replica_epoch", "replica_id")

    rack_id = ""
    """Where a replica may serve instead of the leader: RackFetchParams have one."""
    quota: ReplicationQuota | None = None
    """What bounds the replication from here: ThrottledFetchParams have one."""

    def __init__(
        self,
        replica_id: int,
        replica_epoch: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation: FetchIsolation,
        fetch_only_leader: bool = True,
    ) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation = isolation
        self.fetch_only_leader = fetch_only_leader

    @property
    def is_from_follower(self) -> bool:
        return self.replica_id >= 0


class RackFetchParams(FetchParams):
    """The parameters of a consumer that a replica in its rack may serve, on the listener by which the consumer came (KIP-392)."""

    def __init__(self, params: FetchParams, rack_id: str, listener_name: str) -> None:
        for name in FetchParams.__slots__:
            setattr(self, name, getattr(params, name))
        self.rack_id = rack_id
        self.listener_name = listener_name


class ThrottledFetchParams(FetchParams):
    """The parameters of a follower's fetch while there are throttled replicas."""

    def __init__(self, params: FetchParams, quota: ReplicationQuota) -> None:
        for name in FetchParams.__slots__:
            setattr(self, name, getattr(params, name))
        self.quota = quota

    def holds_back(self, partition: FetchablePartition) -> bool:
        """Whether the throttle keeps this partition's records from the follower now. A follower that is in sync always gets them: a
        throttle must not drive it out of the ISR."""
        quota = self.quota
        assert quota is not None
        return self.replica_id not in partition.isr and quota.is_throttled(partition.topic, partition.partition) and quota.is_exceeded


class FetchTarget:
    """One partition of a fetch. `topic` is None while the topic id is unknown here; the id is zero when names are used.

    A fetch session keeps its targets from request to request, with what it last sent to its client about each."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "topic_id",
        "watched",
    )

    def __init__(
        self,
        topic: str | None,
        partition: int,
        fetch_offset: int,
        max_bytes: int,
        topic_id: bytes = ZERO_UUID,
        current_leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.sent_high_watermark = UNKNOWN_OFFSET
        self.sent_log_start_offset = UNKNOWN_OFFSET
        self.watched: FetchablePartition | None = None  # the partition that notifies the session of its changes

    def ask_again(self, target: FetchTarget) -> None:
        """Update the target to what a later request of the session asks of this partition.

        A follower drops an answer that belongs to an earlier leader epoch, and the high watermark in it. So a new leader epoch has the
        high watermark sent again. Kafka's CachedPartition does not: its follower learns the high watermark when that moves."""
        if target.current_leader_epoch != self.current_leader_epoch:
            self.sent_high_watermark = UNKNOWN_OFFSET
        self.fetch_offset = target.fetch_offset
        self.max_bytes = target.max_bytes
        self.current_leader_epoch = target.current_leader_epoch
        self.last_fetched_epoch = target.last_fetched_epoch
        self.log_start_offset = target.log_start_offset


class DivergingEpoch(NamedTuple):
    """Where the leader's log and the fetcher's diverge: the largest common epoch and its end offset in the leader's log."""

    epoch: int
    end_offset: int


class PartitionRead:
    """The result of reading one target. All offsets are -1 when `error_code` is set. Its last owner calls `release`."""

    preferred_read_replica = NO_REPLICA
    """Where the consumer is to read instead: RedirectedRead has one."""

    __slots__ = (
        "aborted_transactions",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "records",
        "size_bytes",
        "target",
    )

    def __init__(
        self,
        target: FetchTarget,
        error_code: ErrorCode = ErrorCode.NONE,
        high_watermark: int = UNKNOWN_OFFSET,
        last_stable_offset: int = UNKNOWN_OFFSET,
        log_start_offset: int = UNKNOWN_OFFSET,
    ) -> None:
        self.target = target
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records: Sized = EMPTY_RECORDS
        self.size_bytes = 0  # of the records
        self.aborted_transactions: list[AbortedTransaction] | None = None
        self.diverging_epoch: DivergingEpoch | None = None

    @property
    def has_news(self) -> bool:
        """Whether it has something besides records that must be answered at once."""
        return self.error_code is not ErrorCode.NONE or self.diverging_epoch is not None or self.preferred_read_replica != NO_REPLICA

    def release(self) -> None:
        """Release the records, which will not be sent."""
        records, self.records, self.size_bytes = self.records, EMPTY_RECORDS, 0
        release = getattr(records, "release", None)
        if release is not None:
            release()


class RedirectedRead(PartitionRead):
    """A read that gave nothing because another replica is to serve this consumer (KIP-392)."""

    def __init__(self, target: FetchTarget, log: Log, replica_id: int) -> None:
        super().__init__(target, ErrorCode.NONE, log.high_watermark, log.last_stable_offset, log.log_start_offset)
        self.preferred_read_replica = replica_id


class PartitionWatcher(Protocol):
    """Notified that a partition changed: a fetch session (FetchSession has the details)."""

    watched: dict[FetchablePartition, FetchTarget]

    def mark_changed(self, partition: FetchablePartition) -> DelayedOperation | None: ...

    def unwatch(self, target: FetchTarget) -> None: ...


class FetchablePartition(Protocol):
    """The part of a Partition that a waiting fetch and a watching session use."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def log(self) -> Log: ...

    @property
    def isr(self) -> Container[int]: ...

    @property
    def metrics(self) -> BrokerTopicMetrics: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def role(self) -> PartitionRole: ...

    @property
    def followers(self) -> Container[int]: ...

    @property
    def sessions(self) -> dict[PartitionWatcher, None]: ...

    def __hash__(self) -> int: ...

    def end_offset(self, isolation: FetchIsolation) -> int: ...

    def is_idle_for(self, target: FetchTarget, isolation: FetchIsolation) -> bool: ...

    def is_caught_up(self, target: FetchTarget, node_id: int, broker_epoch: int) -> bool: ...

    def record_caught_up(self, target: FetchTarget, node_id: int, broker_epoch: int, now_ms: int) -> bool: ...
