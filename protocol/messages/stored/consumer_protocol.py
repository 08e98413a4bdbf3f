"""What members of classic consumer groups tell each other through the broker: `metadata` in JoinGroup, `assignment` in SyncGroup.

The version comes first, as an int16 (see `version_prefix`); a newer version than is known is read as the newest known one, as Kafka's
ConsumerProtocol does. The broker passes these bytes on and looks inside only to tell which topics a group subscribes to, and where
members that speak the consumer protocol are in the same group: to these the broker itself gives assignments.
"""

from __future__ import annotations

from ...errors import DecodeError
from ...schema import Array, Bytes, Int32, String, message, since, struct
from .version_prefix import VERSION, decode_with_version, encode_with_version

NEWEST_VERSION = 3


@struct
class TopicPartition:
    topic: String = ""
    partitions: Array[Int32] = []


@message(versions=(0, NEWEST_VERSION), flexible=None)
class ConsumerProtocolSubscription:
    """Version 1 adds owned partitions (KIP-429), 2 the generation they belong to (KIP-792), 3 the rack (KIP-881)."""

    topics: Array[String] = []
    user_data: Bytes | None = None
    owned_partitions: Array[TopicPartition] = since(1, default=[], ignorable=True)
    generation_id: Int32 = since(2, default=-1, ignorable=True)
    rack_id: String | None = since(3, default=None, ignorable=True)


@message(versions=(0, NEWEST_VERSION), flexible=None)
class ConsumerProtocolAssignment:
    """All versions are the same; they follow those of the subscription."""

    assigned_partitions: Array[TopicPartition] = []
    user_data: Bytes | None = None


def decode_subscription(buffer: bytes | memoryview) -> ConsumerProtocolSubscription:
    """Raises DecodeError when the bytes are not a consumer's subscription."""
    return decode_with_version(ConsumerProtocolSubscription, buffer, is_newer_allowed=True)[0]


def decode_assignment(buffer: bytes | memoryview) -> ConsumerProtocolAssignment:
    """Raises DecodeError when the bytes are not what a consumer is assigned."""
    return decode_with_version(ConsumerProtocolAssignment, buffer, is_newer_allowed=True)[0]


def version_of(buffer: bytes | memoryview) -> int:
    """The version of a subscription or assignment, the newest known one at most. Raises DecodeError when there is none."""
    version = VERSION.unpack_from(buffer)[0] if len(buffer) >= VERSION.size else -1
    if version < 0:
        raise DecodeError("bytes of the consumer protocol without a version")
    return min(int(version), NEWEST_VERSION)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """As a consumer is told it that gave its subscription in `version`."""
    return encode_with_version(assignment, version)
