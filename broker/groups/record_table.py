"""The record types of `__consumer_offsets`: how each is encoded, and which method replays it.

Types that are not in the table, such as those of share groups (KIP-932), are skipped with a warning.

The versions are those that Apache Kafka 4.3 writes: GroupMetadataValue 3; OffsetCommitValue 4, which has the topic's id, or 1 for a commit
with an explicit retention time, which no other version has; 0 for all types of KIP-848 groups.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from broker.coordination.records import RecordTable, RecordType, encode_key
from protocol.messages.stored.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.coordination.records import Replay
    from broker.groups.consumer.store import ConsumerGroupStore
    from broker.groups.shard import GroupCoordinatorShard

LEGACY_OFFSET_COMMIT = 0
"""The type of offsets that very old brokers wrote, with the same key."""

GROUP_METADATA_VALUE_VERSION = 3
OFFSET_COMMIT_VALUE_VERSION = 4
EXPIRING_OFFSET_COMMIT_VALUE_VERSION = 1

CONSUMER_GROUP_VALUE_VERSION = 0

OFFSET_KEYS_CACHED = 10_000
"""Encoded keys of offsets in the cache. Groups commit the same partitions again and again, and encoding a key costs 4 µs."""


@lru_cache(maxsize=OFFSET_KEYS_CACHED)
def _encoded_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


def _offset_commit_version(value: OffsetCommitValue) -> int:
    return OFFSET_COMMIT_VALUE_VERSION if value.expire_timestamp == -1 else EXPIRING_OFFSET_COMMIT_VALUE_VERSION


def _consumer_group_rows() -> Iterable[RecordType[GroupCoordinatorShard]]:
    """The types of KIP-848 groups. The first such record imports them."""
    from protocol.messages.stored import consumer_group_records as values
    from protocol.messages.stored import group_records as keys

    def row(
        key_class: type[Any], value_class: type[Any], owner: Callable[[ConsumerGroupStore], Replay]
    ) -> RecordType[GroupCoordinatorShard]:
        return RecordType(key_class, value_class, lambda value: CONSUMER_GROUP_VALUE_VERSION, lambda shard: owner(shard.consumer_groups))

    return (
        row(keys.ConsumerGroupMetadataKey, values.ConsumerGroupMetadataValue, lambda groups: groups.replay_group),
        row(
            keys.ConsumerGroupPartitionMetadataKey,
            values.ConsumerGroupPartitionMetadataValue,
            lambda groups: groups.replay_partition_metadata,
        ),
        row(keys.ConsumerGroupMemberMetadataKey, values.ConsumerGroupMemberMetadataValue, lambda groups: groups.replay_member),
        row(
            keys.ConsumerGroupTargetAssignmentMetadataKey,
            values.ConsumerGroupTargetAssignmentMetadataValue,
            lambda groups: groups.replay_target_epoch,
        ),
        row(
            keys.ConsumerGroupTargetAssignmentMemberKey,
            values.ConsumerGroupTargetAssignmentMemberValue,
            lambda groups: groups.replay_target,
        ),
        row(
            keys.ConsumerGroupCurrentMemberAssignmentKey,
            values.ConsumerGroupCurrentMemberAssignmentValue,
            lambda groups: groups.replay_assignment,
        ),
        row(
            keys.ConsumerGroupRegularExpressionKey,
            values.ConsumerGroupRegularExpressionValue,
            lambda groups: groups.replay_regular_expression,
        ),
    )


GROUP_RECORDS: RecordTable[GroupCoordinatorShard] = RecordTable(
    [
        RecordType(
            key_class=OffsetCommitKey,
            value_class=OffsetCommitValue,
            value_version=_offset_commit_version,
            owner=lambda shard: shard.offset_manager.replay,
            encode_key=lambda key: _encoded_offset_key(key.group, key.topic, key.partition),
            older_numbers=(LEGACY_OFFSET_COMMIT,),
        ),
        RecordType(
            key_class=GroupMetadataKey,
            value_class=GroupMetadataValue,
            value_version=lambda value: GROUP_METADATA_VALUE_VERSION,
            owner=lambda shard: shard.group_manager.replay,
        ),
    ],
    load_more=_consumer_group_rows,
)
"""All record types that this coordinator reads and writes."""
