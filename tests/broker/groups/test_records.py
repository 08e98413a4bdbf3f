"""Records of `__consumer_offsets` against bytes that Apache Kafka 4.3.1 wrote."""

import pytest

from broker.coordination.records import CoordinatorRecord, UnknownRecordTypeError
from broker.groups.classic.classic_group import ClassicGroup
from broker.groups.record_table import GROUP_RECORDS
from broker.groups.records import empty_group_record, group_metadata_record, offset_tombstone
from protocol.errors import DecodeError
from protocol.messages.stored.group_records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue

GROUP_KEY = bytes.fromhex("000200026731")
NEW_GROUP = bytes.fromhex("0003000000000000ffffffff000001a1fc21e8c100000000")
STABLE_GROUP = bytes.fromhex(
    "00030008636f6e73756d657200000001000572616e67650028636c692d39646131663761632d636364382d343838652d623134362d646566633933363930306562"
    "000001a1fc21e941000000010028636c692d39646131663761632d636364382d343838652d623134362d646566633933363930306562ffff0003636c69000a2f31"
    "32372e302e302e31000493e00000afc80000000e00000000000100027431000000000000001600000000000100027431000000010000000000000000"
)
EMPTIED_GROUP = bytes.fromhex("00030008636f6e73756d657200000002ffffffff000001a1fc21e99e00000000")
OFFSET_KEY = bytes.fromhex("0001000673696d706c650002743100000000")
OFFSET = bytes.fromhex("0004000000000000000300000000056d657461000001a1fc21e9b9010010e80ef2b6127a4c559a9b4e525c6f4c5c")


@pytest.mark.parametrize(
    ("key", "value"), [(GROUP_KEY, NEW_GROUP), (GROUP_KEY, STABLE_GROUP), (GROUP_KEY, EMPTIED_GROUP), (OFFSET_KEY, OFFSET)]
)
def test_what_kafka_wrote_is_written_the_same(key: bytes, value: bytes):
    record = GROUP_RECORDS.decode(key, value)

    written = GROUP_RECORDS.encode(record, now_ms=123)
    assert (written.key, written.value, written.timestamp) == (key, value, 123)


def test_group_that_kafka_stored_is_stored_again_from_its_members():
    record = GROUP_RECORDS.decode(GROUP_KEY, STABLE_GROUP)
    group = ClassicGroup.from_record("g1", record.value)

    assignments = {member.member_id: member.assignment for member in group.members.values()}
    again = GROUP_RECORDS.encode(group_metadata_record(group, assignments), 0)

    assert (again.key, again.value) == (GROUP_KEY, STABLE_GROUP)
    assert group.subscribed_topics == {"t1"}


def test_new_group_is_stored_as_kafka_stores_it():
    assert GROUP_RECORDS.encode(empty_group_record(ClassicGroup("g1", 0x1A1FC21E8C1)), 0).value == NEW_GROUP


def test_tombstone_has_the_key_of_what_it_ends():
    tombstone = GROUP_RECORDS.encode(offset_tombstone("simple", "t1", 0), 0)

    assert (tombstone.key, tombstone.value) == (OFFSET_KEY, None)


def test_commit_with_a_retention_time_takes_the_version_that_carries_it():
    record = CoordinatorRecord(OffsetCommitKey(group="g"), OffsetCommitValue(offset=1, commit_timestamp=2, expire_timestamp=3))

    stored = GROUP_RECORDS.encode(record, 0)

    assert GROUP_RECORDS.decode(stored.key, stored.value) == record


def test_key_of_very_old_brokers_is_an_offsets_key():
    record = GROUP_RECORDS.decode(b"\0\0" + OFFSET_KEY[2:], OFFSET)

    assert record.key == OffsetCommitKey(group="simple", topic="t1", partition=0)


@pytest.mark.parametrize("record_type", [10, 15, 17, 99])
def test_records_of_other_kinds_are_told_apart(record_type: int):
    key = record_type.to_bytes(2, "big") + b"\0\1g\0\1m"

    with pytest.raises(UnknownRecordTypeError, match=str(record_type)):
        GROUP_RECORDS.decode(key, b"\0\0anything")


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\1", b"\0\2\0\5abc"])
def test_malformed_key_is_refused(key: bytes | None):
    with pytest.raises(DecodeError):
        GROUP_RECORDS.decode(key, None)


def test_cut_value_is_refused():
    for size in range(len(STABLE_GROUP)):
        with pytest.raises(DecodeError):
            GROUP_RECORDS.decode(GROUP_KEY, STABLE_GROUP[:size])


def test_group_tombstone_is_read():
    assert GROUP_RECORDS.decode(GROUP_KEY, None) == CoordinatorRecord(GroupMetadataKey(group="g1"), None)


def test_consumer_member_that_kafka_stored_is_stored_the_same():
    """A member without classic metadata has a tagged field that says so: null is not its default."""
    key = b"\0\5\0\1g\0\1a"
    value = b"\0\0\0\0\nwire-test\x0b/127.0.0.1\x03\x02t\x02u\x01\0\0\xea`\0\x01\0\x01\0"

    record = GROUP_RECORDS.decode(key, value)

    assert record.value.classic_member_metadata is None
    assert GROUP_RECORDS.encode(record, 0).value == value
