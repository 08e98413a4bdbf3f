"""Asks an assignor for the target assignment of a whole group (Kafka's TargetAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Mapping

from broker.groups.assignors.specification import Assignor, GroupSpecification, MemberSpecification
from broker.groups.consumer.group import ResolvedRegularExpression
from broker.groups.consumer.member import NO_PARTITIONS, ConsumerGroupMember, Partitions
from broker.groups.consumer.subscriptions import MemberUpdate, is_homogeneous
from broker.groups.consumer.topics import GroupTopics


def subscribed_topics(member: ConsumerGroupMember, expressions: Mapping[str, ResolvedRegularExpression]) -> frozenset[str]:
    """The names of all topics that the member reads. An expression that is not resolved yet matches none."""
    resolved = expressions.get(member.subscribed_topic_regex) if member.subscribed_topic_regex else None
    return member.subscribed_topic_names if resolved is None else member.subscribed_topic_names | resolved.topics


def compute_targets(update: MemberUpdate, topics: GroupTopics, assignor: Assignor) -> dict[str, Partitions]:
    """The targets of all members of the group, after the update."""
    group = update.group
    ids: dict[frozenset[str], tuple[bytes, ...]] = {}  # most members subscribe to the same
    specifications: dict[str, MemberSpecification] = {}
    for member_id, member in _members_after(update).items():
        names = subscribed_topics(member, group.regular_expressions)
        topic_ids = ids.get(names)
        if topic_ids is None:
            topic_ids = ids[names] = topics.ids_of(names)
        target = group.target_of(member) if member is update.after else group.targets.get(member_id, NO_PARTITIONS)
        specifications[member_id] = MemberSpecification(member.instance_id, topic_ids, target)
    counts = {topic_id: topics.partition_count(topic_id) for topic_ids in ids.values() for topic_id in topic_ids}
    targets = assignor(GroupSpecification(specifications, counts, is_homogeneous(update)))
    return {member_id: targets.get(member_id, NO_PARTITIONS) for member_id in specifications}


def _members_after(update: MemberUpdate) -> dict[str, ConsumerGroupMember]:
    """The members after the update. A static member that returns replaces the member with its instance id."""
    group, after = update.group, update.after
    members = dict(group.members)
    replaced = None if after.instance_id is None else group.static_members.get(after.instance_id)
    if replaced is not None and replaced != after.member_id:
        members.pop(replaced, None)
    members[after.member_id] = after
    return members
