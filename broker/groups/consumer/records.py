"""Makes the records of KIP-848 groups (GroupCoordinatorRecordHelpers).

Sets are written in ascending order. Kafka writes them in the order of its hash maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.coordination.records import CoordinatorRecord
from broker.groups.consumer.group import ConsumerGroup, ResolvedRegularExpression
from broker.groups.consumer.member import ConsumerGroupMember, Owned, Partitions
from protocol.messages.stored.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    TargetTopicPartitions,
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


def group_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id), ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    )


def member_record(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=member.classic,
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[TargetTopicPartitions(topic_id=topic_id, partitions=sorted(target[topic_id])) for topic_id in sorted(target)]
        ),
    )


def assignment_record(group_id: str, member: ConsumerGroupMember) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned_partitions=_topic_partitions(member.assigned),
            partitions_pending_revocation=_topic_partitions(member.pending_revocation),
        ),
    )


def _topic_partitions(owned: Owned) -> list[CurrentTopicPartitions]:
    topics = []
    for topic_id in sorted(owned):
        epochs = owned[topic_id]
        partitions = sorted(epochs)
        topics.append(
            CurrentTopicPartitions(
                topic_id=topic_id, partitions=partitions, assignment_epochs=[epochs[partition] for partition in partitions]
            )
        )
    return topics


def regular_expression_record(group_id: str, regex: str, resolved: ResolvedRegularExpression) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms),
    )


def group_records(group: ConsumerGroup) -> Iterator[CoordinatorRecord]:
    """All records of a group that has none yet."""
    group_id, members = group.group_id, list(group.members.values())
    yield from (member_record(group_id, member) for member in members)
    yield group_epoch_record(group_id, group.epoch, group.metadata_hash)
    yield from (target_record(group_id, member.member_id, group.targets[member.member_id]) for member in members)
    yield target_epoch_record(group_id, group.assignment_epoch, group.assignment_timestamp_ms)
    yield from (assignment_record(group_id, member) for member in members)


# Tombstones.


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """The tombstones of all records of a member."""
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def regular_expression_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def group_tombstones(group: ConsumerGroup, stored_member_ids: Iterable[str] | None = None) -> list[CoordinatorRecord]:
    """The tombstones of all records of a group, in Kafka's order: a member's other records before its metadata. `stored_member_ids` are the
    members to delete, if earlier records of the same batch change the group's members."""
    group_id, member_ids = group.group_id, list(group.members if stored_member_ids is None else stored_member_ids)
    return [
        *(
            CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)
            for member_id in member_ids
        ),
        *(
            CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)
            for member_id in member_ids
        ),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None) for member_id in member_ids),
        *(regular_expression_tombstone(group_id, regex) for regex in group.regular_expressions),
        partition_metadata_tombstone(group_id),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]
