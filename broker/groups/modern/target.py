"""The target assignment of a whole group: what an assignor is asked, and the records of what its answer changes (Kafka's
TargetAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.coordination.records import CoordinatorRecord
from broker.groups.assignors.specification import Assignor, GroupSpecification, MemberSpecification
from broker.groups.modern.group import ConsumerGroup, ResolvedRegularExpression
from broker.groups.modern.member import NO_PARTITIONS, ConsumerGroupMember, Partitions
from broker.groups.modern.records import target_record
from broker.groups.modern.topics import GroupTopics


class NewTargets(NamedTuple):
    """The targets of all members, and the records of those that changed."""

    targets: Mapping[str, Partitions]
    records: list[CoordinatorRecord]


def subscribed_topics(member: ConsumerGroupMember, expressions: Mapping[str, ResolvedRegularExpression]) -> frozenset[str]:
    """All names that the member reads. An expression that is not resolved yet matches none."""
    resolved = expressions.get(member.subscribed_topic_regex) if member.subscribed_topic_regex else None
    return member.subscribed_topic_names if resolved is None else member.subscribed_topic_names | resolved.topics


def members_after(group: ConsumerGroup, changed: ConsumerGroupMember | None) -> dict[str, ConsumerGroupMember]:
    """The group's members once `changed` is one of them, instead of the static member whose place it takes."""
    members = dict(group.members)
    if changed is not None:
        if changed.instance_id is not None:
            replaced = group.static_members.get(changed.instance_id)
            if replaced is not None and replaced != changed.member_id:
                members.pop(replaced, None)
        members[changed.member_id] = changed
    return members


def compute_targets(
    group: ConsumerGroup, changed: ConsumerGroupMember | None, topics: GroupTopics, assignor: Assignor, *, is_homogeneous: bool
) -> NewTargets:
    """The targets for the group once `changed` is a member of it."""
    members = members_after(group, changed)
    ids: dict[frozenset[str], tuple[bytes, ...]] = {}  # most members subscribe to the same
    specifications: dict[str, MemberSpecification] = {}
    for member_id, member in members.items():
        names = subscribed_topics(member, group.regular_expressions)
        topic_ids = ids.get(names)
        if topic_ids is None:
            topic_ids = ids[names] = topics.ids_of(names)
        current = group.target_of(member) if member is changed else group.targets.get(member_id, NO_PARTITIONS)
        specifications[member_id] = MemberSpecification(member.instance_id, topic_ids, current)
    counts = {topic_id: topics.partition_count(topic_id) for topic_ids in ids.values() for topic_id in topic_ids}
    targets = assignor(GroupSpecification(specifications, counts, is_homogeneous))
    records = []
    for member_id in members:
        target, before = targets.get(member_id, NO_PARTITIONS), group.targets.get(member_id)
        if target is not before and target != before:
            records.append(target_record(group.group_id, member_id, target))
    return NewTargets(targets, records)
