"""PartitionChecks: the state of a partition that decides whether a request may be answered here, and the checks themselves.

Partition changes this state; nothing here does. Source: kafka.cluster.Partition (getLocalLog, checkCurrentLeaderEpoch, isUnderMinIsr).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.image import NO_LEADER
from broker.replication.fetch.fetch_data import NO_EPOCH, FetchIsolation
from broker.replication.partition_role import DELETED, LEADER, OFFLINE, PartitionRole
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.replication.isr.in_sync_replicas import InSyncReplicas
    from storage.leader_epochs import EpochEndOffset
    from storage.log import Log


class PartitionChecks:
    """See the module's docstring. `replicas` are the node ids of all replicas; this broker is `node_id`."""

    __slots__ = ("_node_id", "in_sync", "leader_epoch", "leader_id", "log", "replicas", "role")

    def __init__(self, node_id: int, log: Log, in_sync: InSyncReplicas) -> None:
        self.log = log
        self.in_sync = in_sync
        self.leader_id, self.leader_epoch = NO_LEADER, NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.role = PartitionRole.NONE
        self._node_id = node_id

    @property
    def partition_epoch(self) -> int:
        return self.in_sync.state.partition_epoch

    @property
    def isr(self) -> tuple[int, ...]:
        """The ISR that the controller has committed."""
        return self.in_sync.state.isr

    @property
    def is_leader(self) -> bool:
        return self.role is LEADER

    @property
    def is_offline(self) -> bool:
        return self.role is OFFLINE

    @property
    def is_deleted(self) -> bool:
        return self.role is DELETED

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.in_sync.min_isr

    @property
    def is_at_min_isr(self) -> bool:
        return len(self.isr) == self.in_sync.min_isr

    @property
    def is_under_replicated(self) -> bool:
        return self.is_leader and len(self.isr) < len(self.replicas)

    @property
    def is_flush_due(self) -> bool:
        """Whether at least flush.messages records are not durable yet."""
        log = self.log
        return log.log_end_offset - log.durable_end_offset >= log.config.flush_messages

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH unless the requester's epoch is ours; -1 is not checked (KIP-320)."""
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def get_readable_log(self, current_leader_epoch: int, only_leader: bool) -> Log:
        """Returns the log if a request of that epoch may be answered here. The epoch is checked before the leadership, as in Kafka."""
        self.check_leader_epoch(current_leader_epoch)
        role = self.role
        if role is OFFLINE or role is DELETED or (only_leader and role is not LEADER):
            raise KafkaError(self.absence_error())
        return self.log

    def absence_error(self) -> ErrorCode:
        """The error code that tells why the leader's log is not here."""
        if self.role is OFFLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        is_topic_gone = self.role is DELETED and self._node_id in self.replicas
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_topic_gone else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def end_offset(self, isolation: FetchIsolation) -> int:
        """The offset up to which (exclusive) a reader of that isolation may read."""
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return self.log.high_watermark
        if isolation is FetchIsolation.TXN_COMMITTED:
            return self.log.last_stable_offset
        return self.log.log_end_offset

    def end_offset_for_epoch(self, current_leader_epoch: int, leader_epoch: int) -> EpochEndOffset:
        """Returns where `leader_epoch` ends in the leader's log (OffsetForLeaderEpoch)."""
        return self.get_readable_log(current_leader_epoch, True).end_offset_for_epoch(leader_epoch)
