"""The codec's rules one by one; tests/wire holds it against other implementations."""

from __future__ import annotations

import traceback

import pytest

from protocol.codec import MAX_REQUEST_ENTRIES, MAX_STRING_BYTES, decode, decoder, encode, encode_chunks, encoder
from protocol.errors import DecodeError, TooManyEntriesError
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.schema import Array, Bytes, Int8, Int16, Int32, Records, String, message, since, struct
from protocol.uvarint import MAX_TAGGED_FIELDS, uvarint


@struct
class Point:
    x: Int8 = 0
    y: Int8 = 0


@message(versions=(0, 2), flexible=1)
class Example:
    number: Int16 = 0
    name: String | None = since(0, nullable_since=1, default="")
    payload: Bytes = b""
    points: Array[Point] = []
    old: Int32 = since(0, until=0, default=-1)
    hint: Int32 = since(2, default=0, ignorable=True)
    place: Point | None = since(2, default=None)
    mark: Int32 = since(2, tag=3, default=5)
    corner: Point = since(2, tag=1, factory=Point)


EMPTY_TOPIC = bytes.fromhex("01 00")  # an element of MetadataRequest v9: no name, no tagged fields
VERSION_0 = bytes.fromhex("0007 0001 61 00000002 beef 00000001 0102 ffffffff")
VERSION_1 = bytes.fromhex("0007 02 61 03 beef 02 0102 00 00")


def test_version_without_flexible_fields() -> None:
    example = Example(number=7, name="a", payload=b"\xbe\xef", points=[Point(x=1, y=2)])

    assert encode(example, 0) == VERSION_0
    assert decode(Example, 0, VERSION_0) == (example, len(VERSION_0))


def test_flexible_version_has_compact_lengths_and_tag_counts() -> None:
    example = Example(number=7, name="a", payload=b"\xbe\xef", points=[Point(x=1, y=2)])

    assert encode(example, 1) == VERSION_1
    assert decode(Example, 1, VERSION_1) == (example, len(VERSION_1))


def test_tagged_fields_are_written_ascending_and_only_when_not_default() -> None:
    both = encode(Example(mark=6, corner=Point(x=1)), 2)
    none = encode(Example(), 2)

    assert none.endswith(bytes.fromhex("00"))
    assert both.endswith(bytes.fromhex("02 01 03 010000 03 04 00000006"))


def test_nullable_struct_has_a_presence_byte() -> None:
    prefix = bytes.fromhex("0000 01 01 01 00000000")

    assert encode(Example(), 2) == prefix + bytes.fromhex("ff 00")
    assert encode(Example(place=Point(x=1, y=2)), 2) == prefix + bytes.fromhex("01 0102 00 00")


def test_fields_that_a_version_lacks_hold_their_default() -> None:
    decoded, _ = decode(Example, 1, VERSION_1)

    assert (decoded.old, decoded.hint, decoded.place, decoded.mark, decoded.corner) == (-1, 0, None, 5, Point())


@pytest.mark.parametrize("example", [Example(old=3), Example(mark=6), Example(corner=Point(y=1)), Example(place=Point())])
def test_a_value_that_the_version_cannot_carry_is_refused(example: Example) -> None:
    with pytest.raises(ValueError, match="not in this version"):
        encode(example, 1)


def test_an_ignorable_value_is_left_out() -> None:
    assert encode(Example(hint=3), 1) == encode(Example(), 1)


def test_null_is_refused_both_ways_before_it_is_allowed() -> None:
    with pytest.raises(ValueError, match="Example v0"):
        encode(Example(name=None), 0)
    with pytest.raises(DecodeError):
        decode(Example, 0, bytes.fromhex("0007 ffff") + VERSION_0[5:])


def test_null_is_carried_where_it_is_allowed() -> None:
    assert decode(Example, 1, encode(Example(name=None), 1))[0].name is None


@pytest.mark.parametrize("example", [Example(number=2**15), Example(number=None), Example(payload=None), Example(name="a" * 2**15)])
def test_a_value_of_the_wrong_size_or_type_is_a_value_error(example: Example) -> None:
    with pytest.raises(ValueError, match="Example v0"):
        encode(example, 0)


def test_a_version_that_is_not_declared_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="versions 0 to 2"):
        decoder(Example, 3)
    with pytest.raises(ValueError, match="versions 0 to 2"):
        encoder(Example, -1)


def test_decoding_starts_at_the_position_and_leaves_trailing_bytes() -> None:
    decoded, end = decode(Example, 1, b"??" + VERSION_1 + b"more", 2)

    assert (decoded.number, end) == (7, 2 + len(VERSION_1))


def test_a_message_without_fields_may_begin_at_the_end_but_not_behind_it() -> None:
    assert decode(ApiVersionsRequest, 0, b"header", 6)[1] == 6
    with pytest.raises(DecodeError, match="ApiVersionsRequest v0: begins behind the end"):
        decode(ApiVersionsRequest, 0, b"header", 7)


@pytest.mark.parametrize(
    "buffer", [bytes(VERSION_1), bytearray(VERSION_1), memoryview(bytearray(VERSION_1))], ids=["bytes", "bytearray", "memoryview"]
)
def test_strings_and_bytes_are_copied_from_any_buffer(buffer: bytes | bytearray | memoryview) -> None:
    decoded, _ = decode(Example, 1, buffer)

    assert (type(decoded.name), type(decoded.payload)) == (str, bytes)


@pytest.mark.parametrize(
    "malformed",
    [
        "0007 fffe",  # a string of length -2
        "0007 7fff 61",  # a string longer than the buffer
        "0007 0001 ff 00000000 00000000 ffffffff",  # not UTF-8
        "0007 0003 eda080 00000000 00000000 ffffffff",  # UTF-8 of a surrogate
        "0007 0001 61 ffffffff",  # null bytes where null is not allowed
        "0007 0001 61 80000000",
        "0007 0001 61 00000000 ffffffff",  # a null array where null is not allowed
        "0007 0001 61 00000000 7fffffff 0102",  # more elements than bytes
        "0007 0001 61 00000000 00000002 0102 ff",
    ],
)
def test_malformed_lengths_are_decode_errors(malformed: str) -> None:
    with pytest.raises(DecodeError):
        decode(Example, 0, bytes.fromhex(malformed))


@pytest.mark.parametrize(
    "malformed",
    [
        "0007 ffffffffff01",  # a uvarint of six bytes
        "0007 ffffffff0f 61",  # a string of 4 GiB
        "0007 02 61 01 ffffffff7f",  # an array of 2^35 elements
        "0007 02 61 01 01 05",  # five tagged fields and no byte
        "0007 02 61 01 01 01 00 ff",  # a tagged field that does not fit
    ],
)
def test_malformed_compact_lengths_are_decode_errors(malformed: str) -> None:
    with pytest.raises(DecodeError):
        decode(Example, 1, bytes.fromhex(malformed))


def test_a_compact_string_is_no_longer_than_a_legacy_one() -> None:
    longest = Example(name="a" * MAX_STRING_BYTES)
    frame = bytes.fromhex("0007") + uvarint(MAX_STRING_BYTES + 2) + b"a" * (MAX_STRING_BYTES + 1) + VERSION_1[4:]

    assert decode(Example, 1, encode(longest, 1))[0] == longest
    with pytest.raises(DecodeError, match="too long"):
        decode(Example, 1, frame)
    with pytest.raises(ValueError, match="32767 at most"):
        encode(Example(name="a" * (MAX_STRING_BYTES + 1)), 1)


def test_unknown_tagged_fields_are_skipped() -> None:
    with_unknown = VERSION_1[:-1] + bytes.fromhex("02 07 01 aa 63 02 bbcc")

    assert decode(Example, 1, with_unknown) == (decode(Example, 1, VERSION_1)[0], len(with_unknown))


def test_a_known_tagged_field_has_to_fill_its_size() -> None:
    for size in ("03", "05"):
        with pytest.raises(DecodeError, match="mark"):
            decode(Example, 2, bytes.fromhex(f"0000 01 01 01 00000000 ff 01 03 {size} 0000000600"))


def test_objects_of_one_request_are_limited() -> None:
    """CVE-2026-111108: a count was bounded by the bytes that are left, and each element took many more."""
    count = MAX_REQUEST_ENTRIES + 1
    topics = uvarint(count + 1) + count * EMPTY_TOPIC

    with pytest.raises(TooManyEntriesError, match="too many"):
        decode(MetadataRequest, 9, topics + bytes(4))


def test_a_reader_sets_the_limit_and_what_has_just_as_many_entries_passes() -> None:
    for cls, version, request, entries in (
        (MetadataRequest, 9, MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 5), 5),
        (MetadataRequest, 12, MetadataRequest(topics=[MetadataRequestTopic(topic_id=bytes(16), name=None)] * 5), 5),
        (ProduceRequest, 9, ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=b"")] * 4)] * 2), 10),
        (OffsetFetchRequest, 6, OffsetFetchRequest(topics=[OffsetFetchRequestTopic(partition_indexes=[1] * 80)]), 11),
        (OffsetFetchRequest, 6, OffsetFetchRequest(topics=[OffsetFetchRequestTopic(partition_indexes=[1] * 7)]), 1),
        (DescribeGroupsRequest, 5, DescribeGroupsRequest(groups=["g"] * 5), 5),
    ):
        encoded = encode(request, version)

        assert decoder(cls, version)(encoded, 0, entries) == (request, len(encoded))
        with pytest.raises(TooManyEntriesError):
            decoder(cls, version)(encoded, 0, entries - 1)


def test_a_count_that_does_not_fit_is_no_matter_of_the_limit() -> None:
    with pytest.raises(DecodeError, match="does not fit") as refusal:
        decode(MetadataRequest, 9, uvarint(MAX_REQUEST_ENTRIES + 2) + bytes(4))

    assert type(refusal.value) is DecodeError


def test_objects_of_stored_records_are_limited_by_their_bytes_only() -> None:
    count = MAX_REQUEST_ENTRIES + 1
    encoded = bytes(2 + 2 + 4) + count.to_bytes(4, "big") + bytes(2 * count) + bytes(4)

    assert len(decode(Example, 0, encoded)[0].points) == count


@pytest.mark.parametrize("version", [1, 2])
def test_tagged_fields_of_one_struct_are_limited(version: int) -> None:
    """CVE-2026-111115: empty tagged fields take two bytes each, and a frame may hold millions."""
    empty = encode(Example(), version)[:-1]
    unknown = b"".join(bytes((tag, 0)) for tag in range(10, 10 + MAX_TAGGED_FIELDS + 1))

    assert decode(Example, version, empty + uvarint(MAX_TAGGED_FIELDS) + unknown[:-2])[0] == Example()
    with pytest.raises(DecodeError, match="too many tagged fields"):
        decode(Example, version, empty + uvarint(MAX_TAGGED_FIELDS + 1) + unknown)


def test_tagged_fields_count_as_objects() -> None:
    topic = EMPTY_TOPIC[:-1] + uvarint(MAX_TAGGED_FIELDS) + bytes(2 * MAX_TAGGED_FIELDS)
    count = MAX_REQUEST_ENTRIES // MAX_TAGGED_FIELDS + 1

    with pytest.raises(TooManyEntriesError, match="too many tagged fields"):
        decode(MetadataRequest, 9, uvarint(count + 1) + count * topic + bytes(4))


def test_produce_records_are_a_view_over_the_frame() -> None:
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"batch")])])
    frame = bytearray(encode(request, 9))

    records = decode(ProduceRequest, 9, frame)[0].topic_data[0].partition_data[0].records
    records[0:1] = b"B"

    assert b"Batch" in bytes(frame)


class Slice:
    """Stands for a piece of a segment file."""

    def __len__(self) -> int:
        return 5

    def read(self) -> bytes:
        return b"batch"


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_chunks_keep_records_as_the_objects_they_are(version: int) -> None:
    slices = [Slice(), Slice()]
    partitions = [PartitionData(partition_index=0, records=slices[0]), PartitionData(), PartitionData(records=slices[1])]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t" if version < 13 else "", partitions=partitions)])

    chunks = encode_chunks(response, version)

    assert [chunk for chunk in chunks if isinstance(chunk, Slice)] == slices
    assert b"".join(chunk.read() if isinstance(chunk, Slice) else chunk for chunk in chunks) == encode(response, version)
    assert decode(FetchResponse, version, encode(response, version))[0].responses[0].partitions[2].records == b"batch"


def test_a_message_without_records_is_one_chunk() -> None:
    assert encode_chunks(FetchRequest(), 12) == [encode(FetchRequest(), 12)]


def test_empty_records_are_not_null() -> None:
    @message(versions=(0, 0), flexible=None)
    class Envelope:
        records: Records | None = None

    assert decode(Envelope, 0, encode(Envelope(records=b""), 0))[0].records == b""
    assert decode(Envelope, 0, encode(Envelope(), 0))[0].records is None


def test_traceback_shows_the_generated_line() -> None:
    with pytest.raises(DecodeError) as refusal:
        decode(MetadataRequest, 9, b"\x02")

    lines = "".join(traceback.format_exception(refusal.value))

    assert 'File "generated decode_MetadataRequest_v9"' in lines
    assert "raise refused_count" in lines
