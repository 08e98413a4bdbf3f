"""InSyncReplicas: the state that the leader of one partition keeps of its replicas, and the rules of the ISR and the high watermark.

Owns the followers and the state of the ISR. It sends nothing: its Partition sends its proposals to the controller and passes on the
answers. Invariants: only the controller changes the committed ISR; at most one change is in flight. Times are monotonic milliseconds, given
by the caller. Source: kafka.cluster.Partition.
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

# With these errors the controller knows this partition epoch and has not applied the change: the committed ISR is still valid.
NOT_APPLIED_ERRORS = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# After these errors only newer metadata tells the ISR: the change stays in flight until it arrives.
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
    """The facts about the cluster that the rules need."""

    @property
    def replica_lag_time_max_ms(self) -> int: ...

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""

    @property
    def isr_counts(self) -> IsrCounts: ...

    @property
    def events(self) -> LimitedLog:
        """The log of events of partitions."""

    def is_isr_eligible(self, node_id: int, broker_epoch: int | None) -> bool:
        """Whether the broker is registered, unfenced, not shutting down, and still in the broker epoch of its fetches. False if that is
        None: it has not fetched."""

    def is_alive(self, node_id: int) -> bool:
        """Whether the broker is registered and not fenced."""


class MovingReplica(Protocol):
    """The copy of this broker's own replica in another log directory: a ReplicaMove."""

    @property
    def log_start_offset(self) -> int: ...

    def follow_start(self) -> None:
        """Move the copy's start to the log's start, in a later turn of the loop; waiting deletions of records are woken then."""


class InSyncReplicas:
    """See the module's docstring. `followers` is never replaced by another dict. `name` is for the log. `move` is set by a ReplicaMove
    while the replica moves to another log directory."""

    __slots__ = ("_facts", "_log", "_name", "_node_id", "epoch_start_offset", "followers", "leader_epoch", "min_isr", "move", "state")

    def __init__(self, name: str, node_id: int, partition_log: Log, facts: ReplicaFacts) -> None:
        self.followers: dict[int, Follower] = {}
        self.move: MovingReplica | None = None
        self.state: CommittedIsr | PendingIsr = CommittedIsr((), NO_EPOCH)
        self.min_isr = 1
        self.leader_epoch = NO_EPOCH  # the latest one in which this broker led
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
        """Become, or stay, leader according to `image`, which is not older than the known state.

        An image of the known partition epoch is the commit of a change whose answer arrived earlier. A proposal made since then stays in
        flight. (Kafka drops it, although the controller may commit it.) An image of a higher epoch ends the change in flight: it is
        either the commit of that change, or the controller will refuse the change. Its answer is ignored then."""
        followers = self.followers
        for node_id in tuple(followers):
            if node_id not in image.replicas:
                del followers[node_id]
        for node_id in image.replicas:
            if node_id != self._node_id and node_id not in followers:
                followers[node_id] = Follower(node_id)
        if is_new_leader or image.partition_epoch != self.state.partition_epoch:
            if not isinstance(self.state, CommittedIsr) and set(image.isr) == set(self.state.proposal.isr):
                self._count(self.state)  # its commit arrived before its answer
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
        """Drop the state: another broker leads and keeps the ISR."""
        self.followers.clear()
        self.state = CommittedIsr((), image.partition_epoch, image.leader_recovery_state)

    # -- the high watermark --------------------------------------------------------------------------------------------

    def find_high_watermark(self, own_end_offset: int, now_ms: int) -> int:
        """Returns the offset up to which every counted replica has the log; for this broker that is `own_end_offset`.

        A replica that has caught up but is not in the ISR yet counts too. Otherwise the high watermark could move on before the replica
        joins the ISR."""
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
        """The lowest log start offset of the replicas that are alive, and of the copy of our replica. All records before it are deleted
        everywhere."""
        starts = [each.log_start_offset for each in self.followers.values() if self._facts.is_alive(each.node_id)]
        if self.move is not None:
            starts.append(self.move.log_start_offset)
        return min((self._log.log_start_offset, *starts))

    # -- changes of the ISR --------------------------------------------------------------------------------------------

    def lagging_replicas(self, now_ms: int) -> tuple[int, ...]:
        """Members of the ISR that have not caught up with the leader, and were not within the allowed lag either."""
        lag_max_ms = self._facts.replica_lag_time_max_ms
        end_offset = self._log.log_end_offset
        return tuple(
            node_id
            for node_id in self.state.isr
            if node_id != self._node_id
            and (node_id not in self.followers or not self.followers[node_id].is_caught_up(end_offset, now_ms, lag_max_ms))
        )

    def maybe_shrink(self, topic_id: bytes, partition: int, now_ms: int) -> PendingShrinkIsr | None:
        """Returns a change, to be sent, that drops the replicas that fell behind. None if there are none, or if a change is already in
        flight."""
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
        """Returns a change, to be sent, that adds `follower` if it has caught up and may be a member; else None.

        The follower must have reached the start of this leader's epoch: records between the high watermark and that start may have been
        acknowledged by an earlier leader."""
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
        """Returns the broker epoch of the follower's fetches. It is -1, which the controller does not check, for a member that has not
        fetched from this leader yet. If that member had been restarted, the controller would have dropped it at a higher partition epoch
        and would refuse the proposal."""
        if node_id == self._node_id:
            return self._facts.broker_epoch
        follower = self.followers.get(node_id)
        return NO_BROKER_EPOCH if follower is None or follower.broker_epoch is None else follower.broker_epoch

    def take_answer(self, pending: PendingIsr, answer: AlterPartitionResponsePartitionData) -> bool:
        """Apply the controller's answer to `pending`. Returns whether to send the change again because its outcome is not known.

        The answer is ignored if newer metadata has ended the change."""
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
