"""One member of a KIP-848 group: an immutable value (Kafka's ConsumerGroupMember).

STABLE --new target, nothing to revoke, all partitions free--> STABLE, in the target's epoch
  |                    '-- others own some of them --> UNRELEASED_PARTITIONS --released--> STABLE
  '-- partitions to revoke --> UNREVOKED_PARTITIONS --revoked--> STABLE or UNRELEASED_PARTITIONS
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
"""The epoch of a static member that has left and may return before its session ends."""

Owned = Mapping[bytes, Mapping[int, int]]
"""A member's partitions: topic id → partition → the epoch in which it was assigned (KIP-1251)."""

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id → partitions."""

NO_PARTITIONS: Partitions = {}


class MemberState(IntEnum):
    """How far a member has come towards its target assignment. The value is the stored one."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ConsumerGroupMember(NamedTuple):
    """See the module's docstring. `classic` is None unless the member uses the classic protocol."""

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
        """The member in `epoch`, which may be its present one. The present epoch becomes its previous epoch."""
        return self._replace(
            state=state,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerGroupMember:
        """The member with the fields of a stored metadata record."""
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
        """The member with the partitions and epochs of a stored record."""
        return self._replace(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, MemberState.UNKNOWN),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
        )


_STATES = {state.value: state for state in MemberState}


def _owned(topics: list[CurrentTopicPartitions], member_epoch: int) -> Owned:
    """The partitions with their epochs. Records of Kafka before 4.3 have no such epoch; the member's epoch stands for it."""
    return {
        topic.topic_id: dict(zip(topic.partitions, topic.assignment_epochs or [member_epoch] * len(topic.partitions), strict=False))
        for topic in topics
    }


def partitions_of(owned: Owned) -> Partitions:
    """The partitions, without their epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
