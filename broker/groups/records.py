"""Records of `__consumer_offsets` as the coordinator makes and reads them.

Records of kinds that are not served here, those of the newer group protocols (KIP-848, KIP-932) among them, are left alone:
`read_record` returns None for them.

Versions are those that Apache Kafka 4.3 writes: GroupMetadataValue 3; OffsetCommitValue 4 with the topic's id, or 1 for a commit
with an explicit retention time, the only version that has room for it.
"""

from __future__ import annotations

from functools import lru_cache

from broker.coordination.records import CoordinatorRecord
from broker.groups.classic_group import ClassicGroup
from protocol.errors import DecodeError
from protocol.messages.stored.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from protocol.records import SimpleRecord

GROUP_METADATA_VALUE_VERSION = 3
OFFSET_COMMIT_VALUE_VERSION = 4
EXPIRING_OFFSET_COMMIT_VALUE_VERSION = 1

OFFSET_KEYS_CACHED = 10_000
"""Encoded keys of offsets that are remembered: the same partitions are committed again and again, and encoding costs 4 µs."""


def encode_record(record: CoordinatorRecord, now_ms: int) -> SimpleRecord:
    key, value = record.key, record.value
    key_bytes = _offset_key(key.group, key.topic, key.partition) if isinstance(key, OffsetCommitKey) else encode_key(key)
    if value is None:
        return SimpleRecord(key_bytes, None, timestamp=now_ms)
    if isinstance(value, GroupMetadataValue):
        version = GROUP_METADATA_VALUE_VERSION
    else:
        version = OFFSET_COMMIT_VALUE_VERSION if value.expire_timestamp == -1 else EXPIRING_OFFSET_COMMIT_VALUE_VERSION
    return SimpleRecord(key_bytes, encode_value(value, version), timestamp=now_ms)


def read_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    """The record if it is of a kind that is served here, else None. DecodeError when malformed."""
    if key is None:
        raise DecodeError("a record of __consumer_offsets has no key")
    record_key = decode_key(key)
    if isinstance(record_key, LegacyOffsetCommitKey):
        record_key = OffsetCommitKey(group=record_key.group, topic=record_key.topic, partition=record_key.partition)
    if not isinstance(record_key, OffsetCommitKey | GroupMetadataKey):
        return None
    return CoordinatorRecord(record_key, None if value is None else decode_value(record_key, value)[0])


def group_metadata_record(group: ClassicGroup, assignments: dict[str, bytes]) -> CoordinatorRecord:
    """The group's current generation with these assignments; members not in them get an empty one."""
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
    """A group that has just come to be and has no generation yet."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=group.state_timestamp_ms),
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


@lru_cache(maxsize=OFFSET_KEYS_CACHED)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=partition))


forget_offset_keys = _offset_key.cache_clear
"""As `forget_hashes`."""
