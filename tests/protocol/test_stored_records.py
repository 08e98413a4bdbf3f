"""What is around stored messages: the metadata frame, key types and version prefixes."""

from __future__ import annotations

import pytest

from protocol.errors import DecodeError
from protocol.messages.stored.consumer_protocol import ConsumerProtocolSubscription, decode_subscription
from protocol.messages.stored.control_records import decode_control_key
from protocol.messages.stored.group_records import GroupMetadataKey
from protocol.messages.stored.metadata_records import (
    TopicRecord,
    UnknownMetadataRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from protocol.messages.stored.version_prefix import encode_with_version
from protocol.records import ControlRecordType, encode_control_record_key, encode_end_transaction_value

TOPIC = TopicRecord(name="a", topic_id=bytes(range(16)))
TOPIC_VALUE = bytes.fromhex("01 02 00 02 61 000102030405060708090a0b0c0d0e0f 00")


def test_metadata_record_has_frame_version_key_and_version_before_it() -> None:
    assert encode_metadata_record(TOPIC, 0) == TOPIC_VALUE
    assert decode_metadata_record(memoryview(TOPIC_VALUE)) == (TOPIC, 0)


@pytest.mark.parametrize(("value", "key", "version"), [("01 63 00 aabb", 0x63, 0), ("01 02 07 aabb", 2, 7)])
def test_unknown_types_and_versions_are_handed_back(value: str, key: int, version: int) -> None:
    record, _ = decode_metadata_record(bytes.fromhex(value))

    assert isinstance(record, UnknownMetadataRecord)
    assert (record.key, record.version, record.body) == (key, version, b"\xaa\xbb")


@pytest.mark.parametrize(
    "value", [b"", b"\x01", b"\x00" + TOPIC_VALUE[1:], b"\x02" + TOPIC_VALUE[1:], TOPIC_VALUE[:-1], TOPIC_VALUE + b"\0"]
)
def test_malformed_metadata_values_are_decode_errors(value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_metadata_record(value)


def test_only_metadata_records_get_the_frame() -> None:
    with pytest.raises(ValueError, match="not a metadata record"):
        encode_metadata_record(GroupMetadataKey(group="g"), 0)


def test_a_newer_subscription_is_read_as_the_newest_known() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"], user_data=b"u", generation_id=4, rack_id="r")
    newer = b"\x00\x09" + encode_with_version(subscription, 3)[2:] + b"fields to come"

    assert decode_subscription(newer) == subscription


@pytest.mark.parametrize("malformed", [b"", b"\xff\xff", b"range", b"\x00\x00\x00\x00\x00\x09"])
def test_a_malformed_subscription_is_a_decode_error(malformed: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_subscription(malformed)


def test_control_keys_are_version_and_type() -> None:
    assert encode_control_record_key(ControlRecordType.COMMIT) == bytes.fromhex("0000 0001")
    assert decode_control_key(bytes.fromhex("0000 0002")) is ControlRecordType.LEADER_CHANGE
    assert decode_control_key(bytes.fromhex("0000 0063")) is ControlRecordType.UNKNOWN


@pytest.mark.parametrize("malformed", ["", "0000", "0000 00", "ffff 0001"])
def test_malformed_control_keys_are_decode_errors(malformed: str) -> None:
    with pytest.raises(DecodeError):
        decode_control_key(bytes.fromhex(malformed))


def test_end_txn_marker_is_version_and_coordinator_epoch() -> None:
    assert encode_end_transaction_value(7) == bytes.fromhex("0000 00000007")
