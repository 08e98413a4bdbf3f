"""The target assignment of a whole group: what an assignor is asked, and what it answers (Kafka's TargetAssignmentBuilder).

Computed in pieces, on what the group was at the begin: of a large group it takes longer than a request may hold the loop.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

from broker.groups.assignors.specification import Assignor, GroupSpecification, MemberSpecification
from broker.groups.consumer.group import ResolvedRegularExpression
from broker.groups.consumer.member import NO_PARTITIONS, ConsumerGroupMember, Partitions
from broker.groups.consumer.subscriptions import MemberUpdate, is_homogeneous
from broker.groups.consumer.topics import GroupTopics
from broker.loop.pieces import Pace


class GroupSnapshot(NamedTuple):
    """What an assignment depends on, of the group once a request has changed it."""

    group_id: str
    members: Mapping[str, ConsumerGroupMember]
    targets: Mapping[str, Partitions]
    expressions: Mapping[str, ResolvedRegularExpression]
    is_homogeneous: bool

    @classmethod
    def of(cls, update: MemberUpdate) -> GroupSnapshot:
        group, after = update.group, update.after
        members = dict(group.members)
        replaced = None if after.instance_id is None else group.static_members.get(after.instance_id)
        if replaced is not None and replaced != after.member_id:
            members.pop(replaced, None)
        members[after.member_id] = after
        targets = {**group.targets, after.member_id: group.target_of(after)}
        return cls(group.group_id, members, targets, dict(group.regular_expressions), is_homogeneous(update))


def subscribed_topics(member: ConsumerGroupMember, expressions: Mapping[str, ResolvedRegularExpression]) -> frozenset[str]:
    """All names that the member reads. An expression that is not resolved yet matches none."""
    resolved = expressions.get(member.subscribed_topic_regex) if member.subscribed_topic_regex else None
    return member.subscribed_topic_names if resolved is None else member.subscribed_topic_names | resolved.topics


def compute_targets(group: GroupSnapshot, topics: GroupTopics, assignor: Assignor) -> Generator[None, None, dict[str, Partitions]]:
    """The target of every member."""
    ids: dict[frozenset[str], tuple[bytes, ...]] = {}  # most members subscribe to the same
    specifications: dict[str, MemberSpecification] = {}
    pace = Pace()
    for member_id, member in group.members.items():
        names = subscribed_topics(member, group.expressions)
        topic_ids = ids.get(names)
        if topic_ids is None:
            topic_ids = ids[names] = topics.ids_of(names)
        specifications[member_id] = MemberSpecification(member.instance_id, topic_ids, group.targets.get(member_id, NO_PARTITIONS))
        if pace.is_due():
            yield
    counts = {topic_id: topics.partition_count(topic_id) for topic_ids in ids.values() for topic_id in topic_ids}
    targets = yield from assignor(GroupSpecification(specifications, counts, group.is_homogeneous))
    return {member_id: targets.get(member_id, NO_PARTITIONS) for member_id in group.members}
