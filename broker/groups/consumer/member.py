"""One member of a KIP-848 group: a value that does not change (Kafka's ConsumerGroupMember).

STABLE --target moves on, nothing to give up, nothing held by others--> STABLE, in the target's epoch
  |                                   '-- some is held by others --> UNRELEASED_PARTITIONS --released--> STABLE
  '-- something to give up --> UNREVOKED_PARTITIONS --given up--> STABLE or UNRELEASED_PARTITIONS
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from protocol.messages.stored.consumer_group_records import (
        ClassicMemberMetadata,
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupMemberMetadataValue,
        CurrentTopicPartitions,
    )

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member has left and is expected back before its session ends."""

Owned = Mapping[bytes, Mapping[int, int]]
"""What a member owns: topic id → partition → the epoch in which it was assigned (KIP-1251)."""

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id → partitions."""

NO_PARTITIONS: Partitions = {}


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment; the value is what is stored."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ConsumerGroupMember(NamedTuple):
    """See the module's docstring. `classic` is there for a member that speaks the classic protocol."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    assigned: Owned = {}
    pending_revocation: Owned = {}

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def moved_to(self, state: MemberState, epoch: int, assigned: Owned, pending_revocation: Owned) -> ConsumerGroupMember:
        """The member in `epoch`, which may be the one it is in; the one it was in is its previous epoch."""
        return self._replace(
            state=state,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerGroupMember:
        """As a stored record describes it."""
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerGroupMember:
        """With the partitions and epochs of a stored record."""
        return self._replace(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, MemberState.UNKNOWN),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
        )


_STATES = {state.value: state for state in MemberState}


def _owned(topics: list[CurrentTopicPartitions], member_epoch: int) -> Owned:
    """Records of Kafka before 4.3 do not say when a partition was assigned: it counts as assigned in the member's epoch."""
    return {
        topic.topic_id: dict(zip(topic.partitions, topic.assignment_epochs or [member_epoch] * len(topic.partitions), strict=False))
        for topic in topics
    }


def partitions_of(owned: Owned) -> Partitions:
    """What is owned, without the epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
