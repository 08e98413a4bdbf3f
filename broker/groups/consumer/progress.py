"""MemberProgress: the effect of a member's request on its group, for either protocol (steps 1 to 3 of Kafka's consumerGroupHeartbeat and
classicGroupJoinToConsumerGroup).

A change of a member or of a topic bumps the group's epoch. The epoch gets a target assignment, at most one each
`group.consumer.assignment.interval.ms`. Each request of a member takes it one step towards its target.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from broker.groups.consumer.group import METADATA_REFRESH_INTERVAL_MS
from broker.groups.consumer.member import ConsumerGroupMember, MemberState
from broker.groups.consumer.reconciliation import Reconciliation, Target
from broker.groups.consumer.records import (
    assignment_record,
    group_epoch_record,
    member_record,
    partition_metadata_tombstone,
    regular_expression_tombstone,
)
from broker.groups.consumer.subscriptions import (
    MemberUpdate,
    expressions_after,
    left_expressions,
    names_after,
    topics_after,
)
from broker.groups.consumer.target import subscribed_topics

if TYPE_CHECKING:
    from broker.groups.consumer.assignments import Assignments
    from broker.groups.consumer.member_timers import MemberTimers
    from broker.groups.consumer.regular_expressions import RegularExpressions
    from broker.groups.consumer.topics import GroupTopics
    from broker.loop.clock import Clock
    from protocol.messages.consumer_group_heartbeat import HeartbeatTopicPartitions


class SubscriptionChange(Enum):
    """Whether a member's topics have changed."""

    NONE = "none"
    UNRESOLVED = "unresolved"
    """A new regular expression is not resolved yet. The epoch is bumped when it is."""
    RESOLVED = "resolved"


class MemberProgress:
    """See the module's docstring. Changes only timers and the time of the next refresh, and begins to resolve expressions."""

    def __init__(
        self,
        topics: GroupTopics,
        clock: Clock,
        timers: MemberTimers,
        expressions: RegularExpressions,
        assignments: Assignments,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._timers = timers
        self._expressions = expressions
        self._assignments = assignments

    def advance(self, update: MemberUpdate, owned: Sequence[HeartbeatTopicPartitions] | None) -> ConsumerGroupMember:
        """All steps. Returns the member after them. `owned` are the partitions that it says it owns."""
        change = self.note(update)
        self._expressions.maybe_refresh(update)
        target = self._assignments.maybe_assign(update, self.maybe_bump_epoch(update, change))
        return self.reconcile(update, target, owned, change)

    # Step 1: changes.

    def note(self, update: MemberUpdate) -> SubscriptionChange:
        """Store the member if it changed."""
        group, before, after = update.group, update.before, update.after
        if after is before or after == before:
            return SubscriptionChange.NONE
        update.records.append(member_record(group.group_id, after))
        has_new_names = after.subscribed_topic_names != before.subscribed_topic_names
        regex = after.subscribed_topic_regex
        if regex == before.subscribed_topic_regex:
            return SubscriptionChange.RESOLVED if has_new_names else SubscriptionChange.NONE
        update.records.extend(regular_expression_tombstone(group.group_id, left) for left in left_expressions(group, [before]))
        is_resolved = not regex or (regex in group.regex_subscribers and regex in group.regular_expressions)
        return SubscriptionChange.RESOLVED if has_new_names or is_resolved else SubscriptionChange.UNRESOLVED

    def maybe_bump_epoch(self, update: MemberUpdate, change: SubscriptionChange) -> int:
        """The group's epoch: a new one if subscriptions changed, or topics did since the last refresh."""
        group, now_ms = update.group, self._clock.now_ms()
        is_due = change is SubscriptionChange.RESOLVED
        if not is_due and not group.is_refresh_due(now_ms):
            return group.epoch
        metadata_hash = self._hash_after(update, now_ms)
        epoch = group.epoch
        if is_due or metadata_hash != group.metadata_hash:
            epoch += 1
            update.records.append(group_epoch_record(group.group_id, epoch, metadata_hash))
        group.refresh_later(now_ms + METADATA_REFRESH_INTERVAL_MS, epoch)
        if group.has_partition_metadata:
            update.records.append(partition_metadata_tombstone(group.group_id))
        return epoch

    def _hash_after(self, update: MemberUpdate, now_ms: int) -> int:
        """The hash of the topics that the group reads. It is the stored one if the topics are the same and have not changed."""
        group = update.group
        if (
            not group.is_refresh_due(now_ms)
            and names_after(update).keys() == group.name_counts.keys()
            and expressions_after(update).keys() == group.regex_subscribers.keys()
        ):
            return group.metadata_hash
        return self._topics.hash_of(topics_after(update))

    # Step 2 is Assignments.maybe_assign. Step 3: reconciliation.

    def reconcile(
        self, update: MemberUpdate, target: Target, owned: Sequence[HeartbeatTopicPartitions] | None, change: SubscriptionChange
    ) -> ConsumerGroupMember:
        """The member after its next step towards the target."""
        group, member = update.group, update.after
        has_subscription_changed = change is not SubscriptionChange.NONE
        if not has_subscription_changed and member.is_reconciled_to(target.epoch):
            return member
        names = subscribed_topics(member, group.regular_expressions)
        subscribed = frozenset(self._topics.ids_of(names))
        reconciled = Reconciliation(member, target, subscribed, bool(names), has_subscription_changed, owned, group.find_owner).next()
        if reconciled == member:
            return member
        update.records.append(assignment_record(group.group_id, reconciled))
        if not reconciled.uses_classic_protocol:
            if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
                self._timers.await_revocation(group.group_id, reconciled)
            else:
                self._timers.revoked(group.group_id, reconciled.member_id)
        return reconciled
