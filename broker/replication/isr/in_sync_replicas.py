"""InSyncReplicas: what the leader of one partition knows of its replicas, and the rules of the ISR and the high watermark.

Owns the followers and the state of the ISR. Sends nothing: it makes proposals, which its Partition has sent to the controller, and
takes the answers. Invariants: the controller alone changes the committed ISR; one change is in flight at most.
Times are monotonic milliseconds, given by the caller. Source: kafka.cluster.Partition.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from broker.replication.isr.follower import NO_BROKER_EPOCH, Follower
from broker.replication.isr.isr_state import CommittedIsr, IsrCounts, IsrMember, IsrProposal, PendingExpandIsr, PendingIsr, PendingShrinkIsr
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.metadata.image import PartitionImage
    from broker.observability.limited_log import LimitedLog
    from protocol.messages.alter_partition import AlterPartitionResponsePartitionData
    from storage.log import Log

log = logging.getLogger("barnabas.replication")

NO_EPOCH = -1

# Errors by which the controller says that it knows this partition epoch and did not apply the change: the committed ISR stands.
NOT_APPLIED_ERRORS = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# Errors after which only newer metadata has the truth: the change stays in flight until it comes.
AWAIT_METADATA_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class ReplicaFacts(Protocol):
    """What the rules need to know of the cluster."""

    @property
    def replica_lag_time_max_ms(self) -> int: ...

    @property
    def broker_epoch(self) -> int:
        """Of this broker's registration."""

    @property
    def isr_counts(self) -> IsrCounts: ...

    @property
    def events(self) -> LimitedLog:
        """For what happens to partitions."""

    def is_isr_eligible(self, node_id: int, broker_epoch: int | None) -> bool:
        """Whether the broker is registered, unfenced, not shutting down, and still the incarnation that fetched; None if none did."""

    def is_alive(self, node_id: int) -> bool:
        """Whether the broker is registered and not fenced."""


class MovingReplica(Protocol):
    """The copy of this broker's own replica in another log directory: a ReplicaMove."""

    @property
    def log_start_offset(self) -> int: ...

    def follow_start(self) -> None:
        """Have the copy begin where the log does, in a later turn of the loop; deletions of records that wait are woken then."""


class InSyncReplicas:
    """See the module's docstring. `followers` is one dict for good; `name` is for the log; `move` is set while the replica moves to another
    log directory, by the move."""

    __slots__ = ("_facts", "_log", "_name", "_node_id", "epoch_start_offset", "followers", "leader_epoch", "min_isr", "move", "state")

    def __init__(self, name: str, node_id: int, partition_log: Log, facts: ReplicaFacts) -> None:
        self.followers: dict[int, Follower] = {}
        self.move: MovingReplica | None = None
        self.state: CommittedIsr | PendingIsr = CommittedIsr((), NO_EPOCH)
        self.min_isr = 1
        self.leader_epoch = NO_EPOCH  # the latest one that was led here
        self.epoch_start_offset = 0
        self._name = name
        self._node_id = node_id
        self._log = partition_log
        self._facts = facts

    def replace_log(self, partition_log: Log) -> None:
        """As Partition.replace_log."""
        self._log = partition_log

    # -- metadata ----------------------------------------------------------------------------------------------------

    def lead(self, image: PartitionImage, *, is_new_leader: bool, now_ms: int) -> None:
        """This broker leads by `image`, which is not older than what is known.

        At an equal partition epoch it is the echo of a change whose answer was here first: it knows nothing of what was proposed
        since, and leaves that in flight. (Kafka drops it, though the controller may commit it.) A higher epoch overtakes what is
        in flight: the controller refuses that, or this is its commit; the answer is ignored then."""
        followers = self.followers
        for node_id in tuple(followers):
            if node_id not in image.replicas:
                del followers[node_id]
        for node_id in image.replicas:
            if node_id != self._node_id and node_id not in followers:
                followers[node_id] = Follower(node_id)
        if is_new_leader or image.partition_epoch != self.state.partition_epoch:
            if not isinstance(self.state, CommittedIsr) and set(image.isr) == set(self.state.proposal.isr):
                self._count(self.state)  # its commit was here before its answer
            self.state = CommittedIsr(tuple(image.isr), image.partition_epoch)  # a leader counts as recovered, as in Kafka
        if is_new_leader or image.leader_epoch > self.leader_epoch:
            self.leader_epoch = image.leader_epoch
            self.epoch_start_offset = self._log.log_end_offset
            for follower in followers.values():
                follower.reset(
                    is_new_leader=is_new_leader,
                    is_in_isr=follower.node_id in image.isr,
                    leader_end_offset=self.epoch_start_offset,
                    now_ms=now_ms,
                )

    def follow(self, image: PartitionImage) -> None:
        """Another broker leads: it alone knows the ISR."""
        self.followers.clear()
        self.state = CommittedIsr((), image.partition_epoch, image.leader_recovery_state)

    # -- the high watermark --------------------------------------------------------------------------------------------

    def find_high_watermark(self, own_end_offset: int, now_ms: int) -> int:
        """What every replica that counts has, this broker up to `own_end_offset`.

        A replica that has caught up but is not in the ISR yet counts too, so that it can get in before the watermark runs away."""
        maximal_isr = self.state.maximal_isr
        leader_end_offset = self._log.log_end_offset
        high_watermark = own_end_offset
        for follower in self.followers.values():
            if follower.log_end_offset < high_watermark and (
                follower.node_id in maximal_isr or self._is_about_to_join(follower, leader_end_offset, now_ms)
            ):
                high_watermark = follower.log_end_offset
        return high_watermark

    def _is_about_to_join(self, follower: Follower, leader_end_offset: int, now_ms: int) -> bool:
        facts = self._facts
        return follower.is_caught_up(leader_end_offset, now_ms, facts.replica_lag_time_max_ms) and facts.is_isr_eligible(
            follower.node_id, follower.broker_epoch
        )

    @property
    def low_watermark(self) -> int:
        """The lowest offset at which a replica that is alive begins, or the copy of ours: what is before it is gone everywhere."""
        starts = [each.log_start_offset for each in self.followers.values() if self._facts.is_alive(each.node_id)]
        if self.move is not None:
            starts.append(self.move.log_start_offset)
        return min((self._log.log_start_offset, *starts))

    # -- changes of the ISR --------------------------------------------------------------------------------------------

    def lagging_replicas(self, now_ms: int) -> tuple[int, ...]:
        """Members of the ISR that are neither level with the leader nor were within the allowed lag."""
        lag_max_ms = self._facts.replica_lag_time_max_ms
        end_offset = self._log.log_end_offset
        return tuple(
            node_id
            for node_id in self.state.isr
            if node_id != self._node_id
            and (node_id not in self.followers or not self.followers[node_id].is_caught_up(end_offset, now_ms, lag_max_ms))
        )

    def maybe_shrink(self, topic_id: bytes, partition: int, now_ms: int) -> PendingShrinkIsr | None:
        """A change in flight that drops the replicas that fell behind, to be sent; None where there are none, or one is in flight."""
        state = self.state
        if not isinstance(state, CommittedIsr):
            return None
        lagging = self.lagging_replicas(now_ms)
        if not lagging:
            return None
        isr = tuple(node_id for node_id in state.isr if node_id not in lagging)
        self._facts.events.info("shrinking ISRs", "shrinking ISR partition=%s from=%s to=%s", self._name, state.isr, isr)
        self.state = pending = PendingShrinkIsr(lagging, self._proposal(topic_id, partition, isr, state), state)
        return pending

    def maybe_expand(self, topic_id: bytes, partition: int, follower: Follower) -> PendingExpandIsr | None:
        """A change in flight that adds `follower`, to be sent, if it has caught up and may be a member.

        It must have reached this leader's epoch: between the high watermark and its start may lie what was acknowledged before."""
        state = self.state
        if (
            not isinstance(state, CommittedIsr)
            or follower.node_id in state.isr
            or follower.log_end_offset < max(self._log.high_watermark, self.epoch_start_offset)
            or not self._facts.is_isr_eligible(follower.node_id, follower.broker_epoch)
        ):
            return None
        isr = (*state.isr, follower.node_id)
        self._facts.events.info("expanding ISRs", "expanding ISR partition=%s from=%s to=%s", self._name, state.isr, isr)
        self.state = pending = PendingExpandIsr(follower.node_id, self._proposal(topic_id, partition, isr, state), state)
        return pending

    def _proposal(self, topic_id: bytes, partition: int, isr: tuple[int, ...], committed: CommittedIsr) -> IsrProposal:
        members = tuple(IsrMember(node_id, self._broker_epoch_of(node_id)) for node_id in isr)
        return IsrProposal(topic_id, partition, self.leader_epoch, committed.partition_epoch, members, committed.leader_recovery_state)

    def _broker_epoch_of(self, node_id: int) -> int:
        """The incarnation that fetched. -1, which is not checked, for a member that has not fetched from this leader yet: were it
        restarted meanwhile, the controller would have dropped it at a higher partition epoch, and refuse the proposal."""
        if node_id == self._node_id:
            return self._facts.broker_epoch
        follower = self.followers.get(node_id)
        return NO_BROKER_EPOCH if follower is None or follower.broker_epoch is None else follower.broker_epoch

    def take_answer(self, pending: PendingIsr, answer: AlterPartitionResponsePartitionData) -> bool:
        """The controller's answer to `pending`. Returns whether to send it again, because its outcome is not known.

        The answer to a change that newer metadata overtook is ignored."""
        if self.state is not pending:
            return False
        try:
            error_code = ErrorCode(answer.error_code)
        except ValueError:
            error_code = ErrorCode.UNKNOWN_SERVER_ERROR  # a later version's
        if error_code is ErrorCode.NONE:
            if answer.leader_epoch == self.leader_epoch and answer.partition_epoch >= pending.partition_epoch:
                self.state = CommittedIsr(tuple(answer.isr), answer.partition_epoch, answer.leader_recovery_state)
                self._count(pending)
            return False
        self._facts.isr_counts.failed_updates += 1
        if error_code in NOT_APPLIED_ERRORS:
            self.state = pending.committed
            return False
        if error_code in AWAIT_METADATA_ERRORS:
            return False
        log.debug("ISR change failed, sending it again partition=%s error=%s", self._name, error_code.name)
        return True

    def _count(self, committed: PendingIsr) -> None:
        if isinstance(committed, PendingExpandIsr):
            self._facts.isr_counts.expands += 1
        else:
            self._facts.isr_counts.shrinks += 1
