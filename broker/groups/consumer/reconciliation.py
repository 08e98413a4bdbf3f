"""A member's next step from its current assignment to its target (Kafka's CurrentAssignmentBuilder).

A partition changes its owner in two steps. Its owner is told to revoke it and stays in its old epoch; when it has revoked it, the next
owner gets it. So two members never read the same partition, and members without changes continue to read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.groups.consumer.member import ConsumerGroupMember, MemberState, Owned, Partitions
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from protocol.messages.consumer_group_heartbeat import HeartbeatTopicPartitions


class Target(NamedTuple):
    """A member's target assignment, and its epoch."""

    epoch: int
    partitions: Partitions


class Reconciliation(NamedTuple):
    """One step of one member.

    `subscribed` are the ids of the existing topics that it reads now. `is_subscribed`: it subscribes to any topic, existing or not. `owned`
    are the partitions that it says it owns, None if it does not say. `find_owner` returns the member that owns a partition or must still
    revoke it."""

    member: ConsumerGroupMember
    target: Target
    subscribed: Collection[bytes]
    is_subscribed: bool
    has_subscription_changed: bool
    owned: Sequence[HeartbeatTopicPartitions] | None
    find_owner: Callable[[bytes, int], str | None]

    def next(self) -> ConsumerGroupMember:
        """The member after the step. The same object if there is no step to take yet."""
        member = self.member
        if member.state is MemberState.STABLE:
            if member.member_epoch != self.target.epoch:
                return self._next_assignment(member.member_epoch)
            return self._without_unsubscribed() if self.has_subscription_changed else member
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            if self._owns_any(member.pending_revocation):
                return self._without_unsubscribed() if self.has_subscription_changed else member
            return self._next_assignment(member.member_epoch)
        if member.state is MemberState.UNRELEASED_PARTITIONS:
            return self._next_assignment(member.member_epoch)
        # A state of a later version: the member starts again without partitions.
        if self.owned is None or self.owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
            )
        return self._next_assignment(self.target.epoch)

    def _owns_any(self, partitions: Owned) -> bool:
        """Whether the member owns any of them. True if its request does not say what it owns."""
        if self.owned is None:
            return True
        return any(partition in partitions.get(topic.topic_id, {}) for topic in self.owned for partition in topic.partitions)

    def _without_unsubscribed(self) -> ConsumerGroupMember:
        """The member must revoke partitions of topics that it no longer subscribes to, without waiting for a new target.

        A member without subscriptions and without partitions to revoke has an empty assignment. As in Kafka that is an assignment of its
        present epoch, even if it was empty before: its previous epoch is no longer valid."""
        member = self.member
        dropped = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id not in self.subscribed}
        if not dropped and (self.is_subscribed or member.pending_revocation):
            return member
        assigned = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id not in dropped}
        pending = dict(member.pending_revocation)
        for topic_id, partitions in dropped.items():
            pending[topic_id] = {**pending.get(topic_id, {}), **partitions}
        if pending and self._owns_any(pending):
            return member.moved_to(MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, pending)
        return member._replace(previous_member_epoch=member.member_epoch, assigned=assigned)

    def _next_assignment(self, member_epoch: int) -> ConsumerGroupMember:
        member = self.member
        if self._has_target:  # the case of most members when another one joins or leaves
            return member.moved_to(MemberState.STABLE, self.target.epoch, member.assigned, {})
        kept: dict[bytes, dict[int, int]] = {}
        revoked: dict[bytes, dict[int, int]] = {}
        added: dict[bytes, list[int]] = {}
        has_unreleased = False
        for topic_id in sorted(self.target.partitions.keys() | member.assigned.keys()):
            target = self.target.partitions.get(topic_id, frozenset()) if topic_id in self.subscribed else frozenset()
            current = member.assigned.get(topic_id, {})
            if kept_here := {partition: epoch for partition, epoch in current.items() if partition in target}:
                kept[topic_id] = kept_here
            if revoked_here := {partition: epoch for partition, epoch in current.items() if partition not in target}:
                revoked[topic_id] = revoked_here
            missing = sorted(target.difference(current))
            free = [partition for partition in missing if self._is_free(topic_id, partition)]
            has_unreleased |= len(free) < len(missing)
            if free:
                added[topic_id] = free
        if revoked and self._owns_any(revoked):
            return member.moved_to(MemberState.UNREVOKED_PARTITIONS, member_epoch, kept, revoked)
        for topic_id, partitions in added.items():
            kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, self.target.epoch))
        state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
        return member.moved_to(state, self.target.epoch, kept, {})

    @property
    def _has_target(self) -> bool:
        """Whether the member's assignment equals its target, and all of its topics are subscribed to."""
        assigned, target = self.member.assigned, self.target.partitions
        return len(assigned) == len(target) and all(
            topic_id in self.subscribed and topic_id in target and partitions.keys() == target[topic_id]
            for topic_id, partitions in assigned.items()
        )

    def _is_free(self, topic_id: bytes, partition: int) -> bool:
        """Whether no other member owns the partition. The member itself may own it: it was to revoke it and gets it back."""
        return self.find_owner(topic_id, partition) is None or partition in self.member.pending_revocation.get(topic_id, {})
