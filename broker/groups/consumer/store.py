"""The KIP-848 groups of one shard and the replay of their records (the replay methods of Kafka's GroupMetadataManager).

Owns `groups`. Only records change a group, on the leader and while loading. A log that was compacted while members joined and left may
have records in an order in which they were not written: a record is applied as far as possible, and never fails the load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.coordination.records import NO_PRODUCER_ID
from broker.coordination.timeline import Timeline
from broker.groups.consumer.group import (
    ASSIGNMENT_EPOCH,
    ASSIGNMENT_TIMESTAMP,
    GROUP_EPOCH,
    METADATA_HASH,
    ConsumerGroup,
    ResolvedRegularExpression,
)
from broker.groups.consumer.member import LEAVE_EPOCH, ConsumerGroupMember, MemberState
from protocol.messages.stored.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from protocol.messages.stored.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)


class ConsumerGroupStore:
    """See the module's docstring. `forget_simple_group` is called with the id of each new group: offsets that were replayed before may have
    made a simple classic group of that id. `on_group_ended` is called with the id of each group whose tombstone is replayed."""

    def __init__(self, timeline: Timeline, forget_simple_group: Callable[[str], None], on_group_ended: Callable[[str], None]) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self._timeline = timeline
        self._forget_simple_group = forget_simple_group
        self._on_group_ended = on_group_ended
        self._groups_by_topic: dict[str, dict[str, None]] = {}

    def subscribed_to(self, topic: str) -> Iterable[ConsumerGroup]:
        """The groups that read the topic."""
        return [self.groups[group_id] for group_id in self._groups_by_topic.get(topic, ()) if group_id in self.groups]

    def _get_or_make(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if group is None:
            self._forget_simple_group(group_id)
            group = ConsumerGroup(group_id)
            self._timeline.put(self.groups, group_id, group)
        return group

    # The group.

    def replay_group(
        self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None, _producer: int = NO_PRODUCER_ID
    ) -> None:
        if value is None:
            self._on_group_ended(key.group_id)
            group = self.groups.get(key.group_id)
            if group is not None:
                self._note_topics(key.group_id, group.subscribed_topics, set())
                self._timeline.remove(self.groups, key.group_id)
            return
        epochs = self._get_or_make(key.group_id).epochs
        self._timeline.put(epochs, GROUP_EPOCH, value.epoch)
        self._timeline.put(epochs, METADATA_HASH, value.metadata_hash)

    def replay_partition_metadata(
        self, key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None, _producer: int = NO_PRODUCER_ID
    ) -> None:
        """Note that the log has this record, which has no use since Kafka 4.1. The group's next change writes its tombstone."""
        group = self.groups.get(key.group_id) if value is None else self._get_or_make(key.group_id)
        if group is not None:
            group.has_partition_metadata = value is not None

    def replay_regular_expression(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None, _producer: int = NO_PRODUCER_ID
    ) -> None:
        group = self.groups.get(key.group_id) if value is None else self._get_or_make(key.group_id)
        if group is None:
            return
        before = group.subscribed_topics
        old = group.regular_expressions.get(key.regular_expression)
        if old is not None:
            group.count_expression(old, -1)
        if value is None:
            self._timeline.remove(group.regular_expressions, key.regular_expression)
        else:
            resolved = ResolvedRegularExpression(frozenset(value.topics), value.version, value.timestamp)
            group.count_expression(resolved, 1)
            self._timeline.put(group.regular_expressions, key.regular_expression, resolved)
        self._note_topics(key.group_id, before, group.subscribed_topics)

    # Members.

    def replay_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None, _producer: int = NO_PRODUCER_ID
    ) -> None:
        if value is None:
            self._remove_member(key.group_id, key.member_id)
            return
        group = self._get_or_make(key.group_id)
        old = group.members.get(key.member_id)
        self._put_member(group, old, (old or ConsumerGroupMember(key.member_id)).with_metadata(value))

    def replay_assignment(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
        _producer: int = NO_PRODUCER_ID,
    ) -> None:
        group = self.groups.get(key.group_id) if value is None else self._get_or_make(key.group_id)
        old = None if group is None else group.members.get(key.member_id)
        if group is None or (value is None and old is None):
            return
        member = old or ConsumerGroupMember(key.member_id)
        if value is not None:
            member = member.with_assignment(value)
        else:
            member = member._replace(
                member_epoch=LEAVE_EPOCH, previous_member_epoch=LEAVE_EPOCH, state=MemberState.STABLE, assigned={}, pending_revocation={}
            )
        self._put_member(group, old, member)

    def _put_member(self, group: ConsumerGroup, old: ConsumerGroupMember | None, member: ConsumerGroupMember) -> None:
        self._timeline.put(group.members, member.member_id, member)
        if old is None or old[_METADATA] != member[_METADATA]:
            has_other_topics = old is None or old.subscribed_topic_names != member.subscribed_topic_names
            before = group.subscribed_topics if has_other_topics else set()
            if old is not None:
                group.count_member(old, -1)
            group.count_member(member, 1)
            if member.instance_id is not None:
                group.static_members[member.instance_id] = member.member_id
            if has_other_topics:
                self._note_topics(group.group_id, before, group.subscribed_topics)
        if old is None or old.assigned != member.assigned or old.pending_revocation != member.pending_revocation:
            if old is not None:
                group.release_partitions(old)
            group.take_partitions(member)

    def _remove_member(self, group_id: str, member_id: str) -> None:
        group = self.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return
        before = group.subscribed_topics
        self._timeline.remove(group.members, member_id)
        group.count_member(member, -1)
        group.release_partitions(member)
        if member.instance_id is not None and group.static_members.get(member.instance_id) == member_id:
            del group.static_members[member.instance_id]
        self._note_topics(group_id, before, group.subscribed_topics)

    # The target assignment.

    def replay_target(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
        _producer: int = NO_PRODUCER_ID,
    ) -> None:
        if value is None:
            group = self.groups.get(key.group_id)
            if group is not None:
                self._timeline.remove(group.targets, key.member_id)
            return
        target = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
        self._timeline.put(self._get_or_make(key.group_id).targets, key.member_id, target)

    def replay_target_epoch(
        self,
        key: ConsumerGroupTargetAssignmentMetadataKey,
        value: ConsumerGroupTargetAssignmentMetadataValue | None,
        _producer: int = NO_PRODUCER_ID,
    ) -> None:
        group = self.groups.get(key.group_id) if value is None else self._get_or_make(key.group_id)
        if group is not None:
            self._timeline.put(group.epochs, ASSIGNMENT_EPOCH, -1 if value is None else value.assignment_epoch)
            self._timeline.put(group.epochs, ASSIGNMENT_TIMESTAMP, 0 if value is None else value.assignment_timestamp)

    # Which groups read a topic.

    def _note_topics(self, group_id: str, before: set[str], now: set[str]) -> None:
        for topic in before - now:
            groups = self._groups_by_topic.get(topic)
            if groups is not None:
                groups.pop(group_id, None)
                if not groups:
                    del self._groups_by_topic[topic]
        for topic in now - before:
            self._groups_by_topic.setdefault(topic, {})[group_id] = None


_METADATA = slice(ConsumerGroupMember._fields.index("instance_id"), ConsumerGroupMember._fields.index("assigned"))
"""The fields of a member that its metadata record has."""
