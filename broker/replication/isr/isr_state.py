"""The ISR of a partition: as the controller committed it, or with one change in flight (KIP-497).

While a change is in flight, the leader does not know whether the controller has committed it. `isr` is the last ISR that is known to be
committed; its size is compared with min.insync.replicas. `maximal_isr` holds every replica that may be in the ISR by now: the high
watermark waits for them all. Source: org.apache.kafka.server.partition CommittedPartitionState, PendingExpandIsr and PendingShrinkIsr.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.metadata.image import RECOVERED

if TYPE_CHECKING:
    from protocol.messages.alter_partition import AlterPartitionResponsePartitionData

ALL_IN_SYNC = -1
"""acks of a produce that is answered when the whole ISR has it."""


class IsrMember(NamedTuple):
    """A replica of a proposed ISR and its broker epoch; -1 means any (AlterPartition's BrokerState)."""

    broker_id: int
    broker_epoch: int


class IsrCounts:
    """The outcomes of this broker's proposals since its start, for the metrics (Kafka's AlterPartitionListener)."""

    __slots__ = ("expands", "failed_updates", "shrinks")

    def __init__(self) -> None:
        self.expands = 0
        self.shrinks = 0
        self.failed_updates = 0  # each answer that is an error, also where the proposal is sent again


class IsrProposal(NamedTuple):
    """A leader's request to the controller: this ISR, if the partition is still at these epochs."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    members: tuple[IsrMember, ...]
    leader_recovery_state: int = RECOVERED

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple(member.broker_id for member in self.members)


OnIsrAnswer = Callable[["AlterPartitionResponsePartitionData", int], bool]
"""Takes the controller's answer and the monotonic time, and returns whether to send the proposal again."""


class CommittedIsr:
    """No change is in flight."""

    # Each produced batch and each follower's fetch reads both attributes. A NamedTuple's field or a property would be slower.
    __slots__ = ("isr", "leader_recovery_state", "maximal_isr", "partition_epoch")

    def __init__(self, isr: tuple[int, ...], partition_epoch: int, leader_recovery_state: int = RECOVERED) -> None:
        self.isr = self.maximal_isr = isr
        self.partition_epoch = partition_epoch
        self.leader_recovery_state = leader_recovery_state


class PendingExpandIsr(NamedTuple):
    """An expansion in flight. The new replica counts at once: the controller may already have committed it and could elect it, and it
    must not lack acknowledged records then."""

    new_replica_id: int
    proposal: IsrProposal
    committed: CommittedIsr

    @property
    def isr(self) -> tuple[int, ...]:
        return self.committed.isr

    @property
    def partition_epoch(self) -> int:
        return self.committed.partition_epoch

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return (*self.committed.isr, self.new_replica_id)


class PendingShrinkIsr(NamedTuple):
    """A shrink in flight. The replicas to be dropped count until the controller has dropped them."""

    out_of_sync_ids: tuple[int, ...]
    proposal: IsrProposal
    committed: CommittedIsr

    @property
    def isr(self) -> tuple[int, ...]:
        return self.committed.isr

    @property
    def partition_epoch(self) -> int:
        return self.committed.partition_epoch

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self.committed.isr


PendingIsr = PendingExpandIsr | PendingShrinkIsr
