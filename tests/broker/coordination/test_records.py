"""How records of a coordinator's log are framed: key types and value versions, with those of `__consumer_offsets`."""

from __future__ import annotations

import pytest

from broker.coordination.records import CoordinatorRecord, RecordTable, RecordType, UnknownRecordTypeError, encode_key
from protocol.errors import DecodeError
from protocol.messages.stored.group_records import (
    ConsumerGroupMemberMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

TABLE: RecordTable[list[object]] = RecordTable(
    [
        RecordType(OffsetCommitKey, OffsetCommitValue, lambda value: 3, owner=lambda seen: lambda *record: seen.append(record)),
        RecordType(GroupMetadataKey, GroupMetadataValue, lambda value: 3, owner=lambda seen: lambda *record: None, older_numbers=(99,)),
    ]
)


@pytest.mark.parametrize(
    ("key", "encoded"),
    [
        (OffsetCommitKey(group="g", topic="t", partition=1), "0001 000167 000174 00000001"),
        (GroupMetadataKey(group="g"), "0002 000167"),
        (ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), "0005 000167 00016d"),
    ],
)
def test_keys_start_with_their_type(key: object, encoded: str) -> None:
    assert encode_key(key) == bytes.fromhex(encoded)


@pytest.mark.parametrize("encoded", ["0002 000167", "0063 000167"])
def test_older_types_of_a_key_are_read(encoded: str) -> None:
    assert TABLE.decode(bytes.fromhex(encoded), None) == CoordinatorRecord(GroupMetadataKey(group="g"), None)


def test_unknown_types_are_told_from_malformed_keys() -> None:
    with pytest.raises(UnknownRecordTypeError, match="100"):
        TABLE.decode(bytes.fromhex("0064 000167"), None)


@pytest.mark.parametrize("malformed", ["", "00", "0002 0002 67"])
def test_malformed_keys_are_decode_errors(malformed: str) -> None:
    with pytest.raises(DecodeError):
        TABLE.decode(bytes.fromhex(malformed), None)


def test_values_start_with_the_version_that_the_table_says() -> None:
    record = CoordinatorRecord(OffsetCommitKey(group="g"), OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9))

    stored = TABLE.encode(record, now_ms=4)

    assert stored.value == bytes.fromhex("0003 0000000000000005 00000002 00016d 0000000000000009")
    assert stored.timestamp == 4
    assert TABLE.decode(stored.key, stored.value) == record


def test_newer_values_are_decode_errors() -> None:
    with pytest.raises(DecodeError, match="version 9"):
        TABLE.decode(encode_key(GroupMetadataKey()), bytes.fromhex("0009 00"))


def test_records_are_replayed_by_their_owner() -> None:
    seen: list[object] = []

    TABLE.bind(seen)[OffsetCommitKey]("key", "value", 7)

    assert seen == [("key", "value", 7)]
