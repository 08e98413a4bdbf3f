"""RecordBatch v2: golden bytes, kafka-python as an independent reader and writer, and bytes that must be refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

from protocol.compression import Compression
from protocol.errors import DecodeError
from protocol.records import (
    HEADER_SIZE,
    SEQUENCE_MAX,
    BatchHeader,
    ControlRecordType,
    EndTransactionMarker,
    Record,
    SimpleRecord,
    build_batch,
    build_control_batch,
    crc_is_valid,
    encode_end_transaction_value,
    iterate_headers,
    iterate_records,
    patch_for_append,
    read_end_transaction_marker,
    read_header,
    set_log_append_time,
)

GOLDEN = bytes.fromhex(
    "0000000000000005"  # base offset
    "00000046"  # length
    "00000003"  # partition leader epoch
    "02"  # magic
    "CCCCCCCC"  # replaced below by the CRC
    "0010"  # transactional
    "00000001"  # last offset delta
    "0000018bcfe56800"  # base timestamp
    "0000018bcfe56805"  # max timestamp
    "0000000000000007"  # producer id
    "0002"  # producer epoch
    "00000009"  # base sequence
    "00000002"  # records
    "12" "00" "00" "00" "02" "6b" "04" "7661" "00"  # key k, value va
    "14" "00" "0a" "02" "01" "01" "02" "02" "68" "02" "78"  # null key, null value, header h=x
)  # fmt: skip
RECORDS = [
    SimpleRecord(b"k", b"va", (), 1_700_000_000_000),
    SimpleRecord(None, None, (("h", b"x"),), 1_700_000_000_005),
]

WRITTEN_BY_JAVA = {
    Compression.NONE: (
        "00000000000000050000006d0000000402de33d5340010000000020000018bcfe568000000018bcfe568070000000000000009000300000007000000"
        "032a000000066b65790a76616c75650402680278026e013c000e02013000d500bb009c0019000e006800f9006800cc003500b80009000c0013040001"
        "00"
    ),
    Compression.GZIP: (
        "00000000000000050000008000000004026617edfa0011000000020000018bcfe568000000018bcfe568070000000000000009000300000007000000"
        "031f8b08000000000000ffd362606060cb4eade42a4bcc294d6561ca60aa60ca63b461e063623460b8cab09b610e8324031f4306c34f203ec360cab0"
        "838193818741988581910100b40d5fe93c000000"
    ),
    Compression.SNAPPY: (
        "00000000000000050000008300000004025587df220012000000020000018bcfe568000000018bcfe568070000000000000009000300000007000000"
        "0382534e415050590000000001000000010000003e3cec2a000000066b65790a76616c75650402680278026e013c000e02013000d500bb009c001900"
        "0e006800f9006800cc003500b80009000c001304000100"
    ),
    Compression.LZ4: (
        "00000000000000050000007c00000004023edce9240013000000020000018bcfe568000000018bcfe568070000000000000009000300000007000000"
        "0304224d186040823c0000802a000000066b65790a76616c75650402680278026e013c000e02013000d500bb009c0019000e006800f9006800cc0035"
        "00b80009000c00130400010000000000"
    ),
    Compression.ZSTD: (
        "00000000000000050000007900000004029241bf500014000000020000018bcfe568000000018bcfe568070000000000000009000300000007000000"
        "0328b52ffd0058e001002a000000066b65790a76616c75650402680278026e013c000e02013000d500bb009c0019000e006800f9006800cc003500b8"
        "0009000c001304000100010000"
    ),
}
"""One transactional batch of three records in each codec, from MemoryRecordsBuilder of Kafka's Java client 4.3.1."""


def golden() -> bytes:
    """The golden batch with the CRC that kafka-python computes for it."""
    batch = bytearray(GOLDEN)
    batch[17:21] = struct.pack(">I", calc_crc32c(bytes(batch[21:])))
    return bytes(batch)


def one_batch(**fields: Any) -> bytearray:
    return build_batch(RECORDS, **fields)


def test_build_batch_writes_kafkas_bytes() -> None:
    batch = one_batch(base_offset=5, partition_leader_epoch=3, producer_id=7, producer_epoch=2, base_sequence=9, is_transactional=True)

    assert bytes(batch) == golden()


def test_read_header_names_every_field() -> None:
    header = read_header(golden())

    assert header[:4] == (5, 70, 3, 2)
    assert (header.attributes, header.last_offset_delta, header.records_count) == (0x10, 1, 2)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 9)
    assert (header.size_bytes, header.last_offset, header.next_offset, header.last_sequence) == (82, 6, 7, 10)
    assert header.is_transactional and not header.is_control and not header.is_log_append_time


def test_last_sequence_wraps_to_zero_after_the_largest() -> None:
    header = read_header(one_batch(producer_id=1, producer_epoch=0, base_sequence=SEQUENCE_MAX))

    assert header.last_sequence == 0


def test_iterate_records_reads_nulls_and_headers() -> None:
    assert list(iterate_records(golden())) == [
        Record(5, 1_700_000_000_000, b"k", b"va", ()),
        Record(6, 1_700_000_000_005, None, None, (("h", b"x"),)),
    ]


def test_patch_for_append_keeps_the_crc_valid() -> None:
    batch = bytearray(golden())

    patch_for_append(batch, 0, base_offset=2**40, partition_leader_epoch=77)

    assert read_header(batch)[:3] == (2**40, 70, 77)
    assert crc_is_valid(batch, 0, len(batch))


def test_set_log_append_time_gives_every_record_that_time_and_a_new_crc() -> None:
    buffer = bytearray(b"??") + golden()

    set_log_append_time(memoryview(buffer), 2, 42)

    assert crc_is_valid(buffer, 2, len(GOLDEN))
    assert read_header(buffer, 2).is_log_append_time
    assert [record.timestamp for record in iterate_records(buffer, 2)] == [42, 42]


def test_a_changed_byte_under_the_crc_makes_it_invalid() -> None:
    for position in range(21, len(GOLDEN)):
        batch = bytearray(golden())
        batch[position] ^= 1
        assert not crc_is_valid(batch, 0, len(batch))


def test_iterate_headers_stops_before_a_partial_batch() -> None:
    buffer = golden() * 3

    assert [position for position, _ in iterate_headers(buffer)] == [0, 82, 164]
    assert [position for position, _ in iterate_headers(buffer[:-1])] == [0, 82]
    assert [position for position, _ in iterate_headers(buffer[: 82 + HEADER_SIZE - 1])] == [0]


@pytest.mark.parametrize("length", [-1, 0, HEADER_SIZE - 13, -(2**31)])
def test_a_length_below_a_headers_is_a_decode_error(length: int) -> None:
    batch = bytearray(golden())
    batch[8:12] = struct.pack(">i", length)

    with pytest.raises(DecodeError, match="smaller than a header"):
        read_header(batch)


def test_a_short_header_is_a_decode_error() -> None:
    for size in range(HEADER_SIZE):
        with pytest.raises(DecodeError):
            read_header(golden()[:size])


def test_unknown_codec_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="unknown compression type 5"):
        _ = read_header(golden())._replace(attributes=5).compression


def test_commit_marker_is_read_back() -> None:
    batch = build_control_batch(ControlRecordType.COMMIT, encode_end_transaction_value(12), timestamp=1, producer_id=4, producer_epoch=6)
    header = read_header(batch)

    assert header.is_control and header.is_transactional and header.base_sequence == -1
    assert read_end_transaction_marker(batch, 0, header) == EndTransactionMarker(ControlRecordType.COMMIT, 12)


def test_a_leader_change_is_a_control_batch_without_a_producer() -> None:
    batch = build_control_batch(ControlRecordType.LEADER_CHANGE, b"value", timestamp=1)
    header = read_header(batch)

    assert header.is_control and not header.is_transactional
    assert read_end_transaction_marker(batch, 0, header) is None


RECORD = st.builds(
    SimpleRecord,
    key=st.none() | st.binary(max_size=80),
    value=st.none() | st.binary(max_size=300),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
    timestamp=st.integers(0, 2**44),
)


@given(records=st.lists(RECORD, min_size=1, max_size=20), codec=st.sampled_from(list(Compression)), base_offset=st.integers(0, 2**50))
def test_what_is_built_is_read_back(records: list[SimpleRecord], codec: Compression, base_offset: int) -> None:
    batch = build_batch(records, base_offset=base_offset, compression=codec)

    assert crc_is_valid(batch, 0, len(batch))
    assert [record[1:] for record in iterate_records(batch)] == [(r.timestamp, r.key, r.value, r.headers) for r in records]
    assert [record.offset for record in iterate_records(batch)] == [base_offset + i for i in range(len(records))]


@given(records=st.lists(RECORD, min_size=1, max_size=20), codec=st.sampled_from([Compression.NONE, Compression.GZIP]))
@settings(max_examples=50)
def test_kafka_python_reads_what_is_built(records: list[SimpleRecord], codec: Compression) -> None:
    batch = DefaultRecordBatch(
        bytes(build_batch(records, base_offset=3, compression=codec, producer_id=5, producer_epoch=1, base_sequence=0))
    )

    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == [
        (3 + index, r.timestamp, r.key, r.value, tuple(r.headers)) for index, r in enumerate(records)
    ]


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_of_the_java_client_are_read(codec: Compression) -> None:
    batch = bytes.fromhex(WRITTEN_BY_JAVA[codec])

    first, second, third = iterate_records(batch)

    assert crc_is_valid(batch, 0, len(batch)) and read_header(batch).compression is codec
    assert first == Record(5, 1_700_000_000_000, b"key", b"value", (("h", b"x"), ("n", None)))
    assert (second.offset, second.key, len(second.value or b"")) == (6, None, 24)
    assert third == Record(7, 1_699_999_999_990, b"", None, ())


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY, Compression.LZ4])
def test_a_batch_is_built_as_the_java_client_builds_it(codec: Compression) -> None:
    """Deflate and zstd are free to differ between versions of their libraries."""
    written_by_java = bytes.fromhex(WRITTEN_BY_JAVA[codec])
    records = [SimpleRecord(r.key, r.value, r.headers, r.timestamp) for r in iterate_records(written_by_java)]

    built = build_batch(
        records,
        base_offset=5,
        partition_leader_epoch=4,
        compression=codec,
        producer_id=9,
        producer_epoch=3,
        base_sequence=7,
        is_transactional=True,
    )

    assert built == written_by_java


@pytest.mark.parametrize("codec", list(Compression))
def test_kafka_pythons_batches_are_read(codec: Compression) -> None:
    builder = DefaultRecordBatchBuilder(2, int(codec), True, 9, 1, 4, 1 << 20)
    for index in range(50):
        builder.append(index, 1000 + index, b"key%d" % index, None if index % 7 == 0 else b"v" * index, [("h", b"x")])
    batch = bytes(builder.build())

    header = read_header(batch)
    assert crc_is_valid(batch, 0, len(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (9, 1, 4, True)
    assert [record.key for record in iterate_records(batch)] == [b"key%d" % index for index in range(50)]


def with_payload(payload: bytes, count: int = 1) -> bytes:
    header = BatchHeader(0, HEADER_SIZE - 12 + len(payload), 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)
    return struct.pack(">qiibIhiqqqhii", *header) + payload


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param("", id="no record at all"),
        pytest.param("0c", id="size without a body"),
        pytest.param("01", id="negative size"),
        pytest.param("00", id="empty record"),
        pytest.param("0e00000001010000", id="body shorter than its size"),
        pytest.param("0c00000001010000", id="bytes left after the last record"),
        pytest.param("0a000000010100", id="size smaller than the body"),
        pytest.param("0c0000007e0100", id="key past the record's end"),
        pytest.param("0c0000000178" + "00", id="value past the record's end"),
        pytest.param("0c000000010101", id="negative header count"),
        pytest.param("0c000000010104", id="header count past the end"),
        pytest.param("100000000101020101", id="header without a key"),
        pytest.param("ffffffffff01", id="varint of more than five bytes"),
        pytest.param("ffffffff7f", id="varint of more than 32 bits"),
        pytest.param("0c" + "00" + "80" * 11, id="varlong of more than ten bytes"),
    ],
)
def test_a_malformed_record_is_a_decode_error(payload: str) -> None:
    with pytest.raises(DecodeError):
        list(iterate_records(with_payload(bytes.fromhex(payload))))


@pytest.mark.parametrize("count", [-1, 1, 3, 2**31 - 1])
def test_a_count_that_does_not_match_is_a_decode_error(count: int) -> None:
    batch = bytearray(golden())
    batch[57:61] = struct.pack(">i", count)

    with pytest.raises(DecodeError):
        list(iterate_records(batch))


@pytest.mark.parametrize("codec", list(Compression))
def test_every_strict_prefix_of_a_batch_is_a_decode_error(codec: Compression) -> None:
    batch = build_batch(RECORDS * 10, compression=codec)

    for size in range(len(batch)):
        with pytest.raises(DecodeError):
            list(iterate_records(batch[:size]))


@given(codec=st.sampled_from(list(Compression)), position=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_mutated_batch_is_read_or_a_decode_error(codec: Compression, position: int, value: int) -> None:
    """It may be read where the byte says nothing of the records; never is more read than the batch says it has."""
    batch = build_batch(RECORDS * 10, compression=codec)
    batch[position % len(batch)] = value

    try:
        found = list(iterate_records(batch))
    except DecodeError:
        found = []

    assert not found or len(found) == read_header(batch).records_count


def test_decompression_is_bounded_by_max_bytes() -> None:
    batch = build_batch([SimpleRecord(None, bytes(100_000))], compression=Compression.ZSTD)

    with pytest.raises(DecodeError, match="larger than"):
        list(iterate_records(batch, max_bytes=50_000))
