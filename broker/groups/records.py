"""Makes the records of classic groups in `__consumer_offsets`."""

from __future__ import annotations

from broker.coordination.records import CoordinatorRecord
from broker.groups.classic.classic_group import ClassicGroup
from protocol.messages.stored.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey


def group_metadata_record(group: ClassicGroup, assignments: dict[str, bytes]) -> CoordinatorRecord:
    """The group's current generation with these assignments. Members without one get an empty assignment."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=group.state_timestamp_ms,
            members=[member.to_record(group.protocol_name, assignments.get(member.member_id, b"")) for member in group.members.values()],
        ),
    )


def empty_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """A new group, which has no generation yet."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=group.state_timestamp_ms),
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
