"""What a leader accepts from a client, with which error it refuses the rest, and what it writes into a batch."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from typing import Any

import lz4.frame
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from config.topic import LogConfig
from protocol.compression import Compression
from protocol.errors import ErrorCode, KafkaError
from protocol.records import (
    HEADER_SIZE,
    ControlRecordType,
    SimpleRecord,
    assemble_batch,
    build_batch,
    build_control_batch,
    crc_is_valid,
    encode_end_transaction_value,
    iterate_records,
    read_header,
)
from storage import validation
from storage.validation import AppendOrigin, RecordError, RecordValidationError, ValidatedBatch, assign_offsets, check_batch

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
CONFIG = LogConfig()
FULL = LogConfig(record_validation="full")
COMPACTED = LogConfig(cleanup_policy=("compact",))
LOG_APPEND_TIME = LogConfig(message_timestamp_type="LogAppendTime")


def records(count: int = 3, *, key: bytes | None = b"k", timestamp: int = NOW_MS) -> list[SimpleRecord]:
    return [SimpleRecord(key, b"value %d" % index, (), timestamp + index) for index in range(count)]


def patched(batch: bytearray, position: int, layout: str, value: int, *, with_crc: bool = True) -> bytearray:
    """The batch with one header field changed, under a valid CRC unless told otherwise."""
    struct.pack_into(layout, batch, position, value)
    if with_crc:
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def append(batch: bytearray | bytes, config: LogConfig = CONFIG, **check: Any) -> ValidatedBatch:
    view = memoryview(bytearray(batch) if isinstance(batch, bytes) else batch)
    checked = check_batch(view, config, now_ms=NOW_MS, **check)
    return assign_offsets(view, checked, config, first_offset=100, leader_epoch=5, now_ms=NOW_MS)


def refused(batch: bytearray | bytes, config: LogConfig = CONFIG, **check: Any) -> KafkaError:
    before = bytes(batch)
    with pytest.raises(KafkaError) as caught:
        append(batch, config, **check)
    assert bytes(batch) == before, "a refused batch is left as it came"
    return caught.value


# The common case


def test_a_batch_gets_its_offsets_and_epoch_in_place() -> None:
    batch = build_batch(records())

    validated = append(batch)

    assert isinstance(validated.buffer, memoryview) and validated.buffer.obj is batch
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (100, 5)
    assert crc_is_valid(batch, 0, len(batch))
    assert (validated.base_offset, validated.last_offset, validated.records_count) == (100, 102, 3)
    assert (validated.max_timestamp, validated.log_append_time_ms, validated.size_bytes) == (NOW_MS + 2, -1, len(batch))


def test_idempotent_and_transactional_fields_are_kept() -> None:
    batch = build_batch(records(), producer_id=4, producer_epoch=2, base_sequence=9, is_transactional=True)

    append(batch)

    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (4, 2, 9, True)


def test_log_append_time_is_written_with_a_new_crc() -> None:
    batch = build_batch(records(timestamp=5))

    validated = append(batch, LOG_APPEND_TIME)

    assert crc_is_valid(batch, 0, len(batch))
    assert {record.timestamp for record in iterate_records(batch)} == {NOW_MS}
    assert validated.log_append_time_ms == validated.max_timestamp == NOW_MS


def test_records_without_a_timestamp_are_accepted() -> None:
    batch = build_batch([SimpleRecord(None, b"v")])

    assert append(batch).max_timestamp == -1


# Refused by the header


@pytest.mark.parametrize(
    ("position", "layout", "value", "code"),
    [
        pytest.param(0, ">q", 1, ErrorCode.INVALID_RECORD, id="base offset"),
        pytest.param(8, ">i", 10, ErrorCode.CORRUPT_MESSAGE, id="length below a header"),
        pytest.param(8, ">i", 10_000, ErrorCode.INVALID_RECORD, id="length past the end"),
        pytest.param(16, ">b", 1, ErrorCode.INVALID_RECORD, id="old magic"),
        pytest.param(16, ">b", 3, ErrorCode.CORRUPT_MESSAGE, id="unknown magic"),
        pytest.param(21, ">h", 5, ErrorCode.INVALID_RECORD, id="unknown codec"),
        pytest.param(21, ">h", 0x20, ErrorCode.INVALID_RECORD, id="control bit"),
        pytest.param(23, ">i", -1, ErrorCode.INVALID_RECORD, id="negative last offset delta"),
        pytest.param(23, ">i", 7, ErrorCode.INVALID_RECORD, id="delta and count disagree"),
        pytest.param(43, ">q", 9, ErrorCode.INVALID_RECORD, id="producer id without a sequence"),
        pytest.param(57, ">i", 0, ErrorCode.INVALID_RECORD, id="no records"),
        pytest.param(57, ">i", -5, ErrorCode.INVALID_RECORD, id="negative count"),
    ],
)
def test_a_wrong_header_field_is_refused(position: int, layout: str, value: int, code: ErrorCode) -> None:
    assert refused(patched(build_batch(records()), position, layout, value)).code is code


def test_a_changed_byte_is_a_corrupt_message() -> None:
    batch = build_batch(records())
    batch[-1] ^= 1

    assert refused(batch).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    "batch",
    [b"", b"x" * 16, bytes(build_batch(records())[:-1]), bytes(build_batch(records()) * 2)],
)
def test_anything_but_one_whole_batch_is_an_invalid_record(batch: bytes) -> None:
    assert refused(batch).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("compression_type", ["producer", "gzip"])
@pytest.mark.parametrize("rest", [b"junk", bytes(build_batch(records())[:-1])])
def test_what_follows_a_batch_without_being_one_is_cut_off(rest: bytes, compression_type: str) -> None:
    config = replace(CONFIG, compression_type=compression_type)

    validated = append(build_batch(records()) + rest, config)

    assert bytes(validated.buffer) == bytes(append(build_batch(records()), config).buffer)


def test_a_batch_over_max_message_bytes_is_too_large() -> None:
    batch = build_batch(records())

    append(bytearray(batch), replace(CONFIG, max_message_bytes=len(batch)))
    assert refused(batch, replace(CONFIG, max_message_bytes=len(batch) - 1)).code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_over_segment_bytes_is_a_record_list_too_large() -> None:
    batch = build_batch(records())

    assert refused(batch, replace(CONFIG, segment_bytes=len(batch) - 1)).code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_zstd_is_refused_where_the_request_is_too_old() -> None:
    batch = build_batch(records(), compression=Compression.ZSTD)

    assert refused(batch, zstd_allowed=False).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    append(batch)


# Timestamps


@pytest.mark.parametrize("timestamp", [NOW_MS + HOUR_MS, 0, 1])
def test_timestamps_within_the_window_are_accepted(timestamp: int) -> None:
    batch = build_batch(records(1, timestamp=timestamp))

    assert append(batch).max_timestamp == timestamp
    assert read_header(batch).max_timestamp == timestamp


def test_a_timestamp_more_than_an_hour_ahead_is_refused_by_its_index() -> None:
    batch = build_batch([*records(2), SimpleRecord(None, b"v", (), NOW_MS + HOUR_MS + 1)])

    error = refused(batch)

    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RecordValidationError)
    assert [record_error.batch_index for record_error in error.record_errors] == [2]


def test_a_timestamp_older_than_the_topic_allows_is_refused() -> None:
    config = replace(CONFIG, message_timestamp_before_max_ms=1000)

    append(build_batch(records(1, timestamp=NOW_MS - 1000)), config)
    assert refused(build_batch(records(1, timestamp=NOW_MS - 1001)), config).code is ErrorCode.INVALID_TIMESTAMP


def test_a_first_record_that_is_too_old_is_refused_although_the_largest_is_not() -> None:
    config = replace(CONFIG, message_timestamp_before_max_ms=1000)
    batch = build_batch([SimpleRecord(None, b"v", (), NOW_MS - 5000), SimpleRecord(None, b"v", (), NOW_MS)])

    assert refused(batch, config).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("timestamp", [NOW_MS + 2 * HOUR_MS, -5])
def test_a_header_out_of_the_window_is_corrected_when_its_records_are_within(timestamp: int) -> None:
    """Kafka judges the records, not the header."""
    config = replace(CONFIG, message_timestamp_before_max_ms=1000)
    batch = patched(build_batch(records()), 35, ">q", timestamp)

    assert append(batch, config).max_timestamp == read_header(batch).max_timestamp == NOW_MS + 2
    assert crc_is_valid(batch, 0, len(batch))


def test_a_large_batch_with_a_bad_timestamp_is_refused_without_a_walk() -> None:
    error = refused(build_batch(records(1001, timestamp=NOW_MS + 2 * HOUR_MS)))

    assert isinstance(error, RecordValidationError)
    assert (error.code, error.record_errors) == (ErrorCode.INVALID_TIMESTAMP, [])


def test_a_producer_may_not_set_log_append_time_on_such_a_topic() -> None:
    error = refused(build_batch(records(), log_append_time_ms=NOW_MS), LOG_APPEND_TIME)

    assert isinstance(error, RecordValidationError)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [record_error.batch_index for record_error in error.record_errors] == [0, 1, 2]


def test_a_producers_log_append_time_bit_is_cleared_on_a_create_time_topic() -> None:
    batch = build_batch(records(), log_append_time_ms=NOW_MS)

    append(batch)

    assert not read_header(batch).is_log_append_time
    assert crc_is_valid(batch, 0, len(batch))


# Rules about each record


@pytest.mark.parametrize("codec", list(Compression))
def test_a_record_without_a_key_is_refused_by_a_compacted_topic(codec: Compression) -> None:
    batch = build_batch([*records(1), SimpleRecord(None, b"v", (), NOW_MS), *records(1)], compression=codec)

    error = refused(batch, COMPACTED)

    assert error.code is ErrorCode.INVALID_RECORD
    assert isinstance(error, RecordValidationError)
    assert error.record_errors == [RecordError(1, "A record without a key cannot be written to a compacted topic")]


@pytest.mark.parametrize("config", [CONFIG, FULL, COMPACTED])
@pytest.mark.parametrize("producer_id", [-1, 4])
def test_lz4_blocks_that_depend_on_each_other_are_refused_by_every_topic(config: LogConfig, producer_id: int) -> None:
    """No Java consumer gets past them."""
    plain = build_batch([SimpleRecord(b"k", bytes(200_000), (), NOW_MS)], producer_id=producer_id, base_sequence=0)
    linked = lz4.frame.compress(bytes(plain[HEADER_SIZE:]), block_linked=True)
    batch = assemble_batch(read_header(plain)._replace(attributes=Compression.LZ4), linked)

    assert refused(batch, config).code is ErrorCode.INVALID_RECORD


def test_keyed_records_are_accepted_by_a_compacted_topic() -> None:
    assert append(build_batch(records()), COMPACTED).last_offset == 102


def test_a_false_largest_timestamp_is_corrected_under_full_validation() -> None:
    batch = patched(build_batch(records()), 35, ">q", NOW_MS + 1000)

    validated = append(batch, FULL)

    assert read_header(batch).max_timestamp == validated.max_timestamp == NOW_MS + 2
    assert crc_is_valid(batch, 0, len(batch))


def test_a_false_largest_timestamp_is_accepted_by_default() -> None:
    batch = patched(build_batch(records()), 35, ">q", NOW_MS + 1000)

    assert append(batch).max_timestamp == NOW_MS + 1000


def test_a_timestamp_hidden_from_the_header_is_refused_under_full_validation() -> None:
    batch = build_batch([*records(1), SimpleRecord(b"k", b"v", (), NOW_MS + 2 * HOUR_MS)])
    batch = patched(batch, 35, ">q", NOW_MS)

    assert refused(batch, FULL).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", list(Compression))
def test_malformed_records_are_refused_under_full_validation(codec: Compression) -> None:
    batch = build_batch(records(), compression=codec)
    batch = patched(batch[:-2], 8, ">i", len(batch) - 2 - 12)

    assert refused(batch, FULL).code is ErrorCode.INVALID_RECORD


def test_wrong_offset_deltas_are_refused_under_full_validation() -> None:
    first = build_batch(records(1))
    batch = first + first[61:]
    for position, value in ((8, len(batch) - 12), (23, 1), (57, 2)):
        batch = patched(batch, position, ">i", value)

    error = refused(batch, FULL)

    assert error.code is ErrorCode.INVALID_RECORD
    assert error.message is not None and "offset delta 0" in error.message


@pytest.mark.parametrize("codec", ["producer", "gzip"])
def test_records_of_a_batch_that_a_producer_stamped_have_its_time(codec: str) -> None:
    """Kafka reads them so (DefaultRecordBatch), keeps the bytes of those that it does not rewrite, and clears the bit."""
    config = replace(COMPACTED, compression_type=codec, message_timestamp_after_max_ms=0)
    batch = build_batch(records(timestamp=NOW_MS + HOUR_MS), log_append_time_ms=NOW_MS - 5)

    validated = append(batch, config)

    header = read_header(validated.buffer)
    kept = NOW_MS + HOUR_MS if codec == "producer" else NOW_MS - 5
    assert (validated.max_timestamp, header.max_timestamp, header.is_log_append_time) == (NOW_MS - 5, NOW_MS - 5, False)
    assert next(iterate_records(validated.buffer)).timestamp == kept


# compression.type


@pytest.mark.parametrize("source", list(Compression))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_takes_the_topics_compression_and_keeps_its_content(source: Compression, target: str) -> None:
    batch = build_batch(records(50), compression=source, producer_id=4, producer_epoch=2, base_sequence=9, is_transactional=True)
    expected = [record._replace(offset=100 + index) for index, record in enumerate(iterate_records(batch))]

    validated = append(batch, replace(CONFIG, compression_type=target))

    header = read_header(validated.buffer)
    assert header.compression.name == ("NONE" if target == "uncompressed" else target.upper())
    assert list(iterate_records(validated.buffer)) == expected
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (4, 2, 9, True)
    assert crc_is_valid(validated.buffer, 0, validated.size_bytes) and len(validated.buffer) == validated.size_bytes


def test_a_batch_that_grows_over_the_limit_is_refused() -> None:
    batch = build_batch([SimpleRecord(b"k", bytes(10_000), (), NOW_MS)], compression=Compression.GZIP)

    assert refused(batch, replace(CONFIG, compression_type="uncompressed", max_message_bytes=5000)).code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_decompression_bomb_is_refused() -> None:
    batch = build_batch([SimpleRecord(b"k", bytes(64 * 1024 * 1024), (), NOW_MS)], compression=Compression.ZSTD)

    assert refused(batch, FULL).code is ErrorCode.INVALID_RECORD


def test_recompression_with_log_append_time() -> None:
    batch = build_batch(records())

    validated = append(batch, replace(LOG_APPEND_TIME, compression_type="lz4"))

    assert {record.timestamp for record in iterate_records(validated.buffer)} == {NOW_MS}
    assert crc_is_valid(validated.buffer, 0, validated.size_bytes)


# Origins


def test_a_coordinator_may_append_control_batches_and_they_stay_uncompressed() -> None:
    batch = build_control_batch(
        ControlRecordType.ABORT, encode_end_transaction_value(1), timestamp=NOW_MS, producer_id=3, producer_epoch=1, base_offset=0
    )

    validated = append(batch, replace(COMPACTED, compression_type="gzip"), origin=AppendOrigin.COORDINATOR)

    header = read_header(validated.buffer)
    assert header.is_control and header.compression is Compression.NONE and header.base_offset == 100


@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_a_kafka_error(data: bytes) -> None:
    assert refused(data, FULL).code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


@given(position=st.integers(21, 400), value=st.integers(0, 255), codec=st.sampled_from(list(Compression)))
def test_a_mutation_under_a_valid_crc_is_accepted_or_a_kafka_error(position: int, value: int, codec: Compression) -> None:
    batch = build_batch(records(20), compression=codec)
    batch = patched(batch, 21 + position % (len(batch) - 21), ">B", value)

    try:
        validated = append(batch, FULL)
    except KafkaError:
        return
    assert crc_is_valid(validated.buffer, 0, validated.size_bytes)


def test_random_payloads_survive_recompression() -> None:
    batch = build_batch([SimpleRecord(b"k", os.urandom(100_000), (), NOW_MS)])
    value = next(iterate_records(batch)).value

    validated = append(batch, replace(CONFIG, compression_type="snappy"))

    assert next(iterate_records(validated.buffer)).value == value


def test_a_small_bomb_with_a_bad_timestamp_is_refused_without_being_unpacked() -> None:
    bomb = build_batch([SimpleRecord(b"k", bytes(30_000_000), (), NOW_MS + 9_000_000_000)], compression=Compression.ZSTD)

    with pytest.raises(RecordValidationError) as refused:
        check_batch(memoryview(bomb), LogConfig(), now_ms=NOW_MS)

    assert (refused.value.code, refused.value.record_errors) == (ErrorCode.INVALID_TIMESTAMP, [])


# The shortcut for what producers usually send


def judgement(batch: bytearray, config: LogConfig, zstd_allowed: bool) -> object:
    try:
        return check_batch(memoryview(batch), config, now_ms=NOW_MS, zstd_allowed=zstd_allowed)
    except KafkaError as error:
        return error.code, error.message


HEADER_FIELDS = {0: ">q", 8: ">i", 16: ">b", 17: ">I", 21: ">h", 23: ">i", 27: ">q", 35: ">q", 43: ">q", 51: ">h", 53: ">i", 57: ">i"}
TELLING_NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 4, 5, 8, 16, 19, 20, 32, 61, 127, NOW_MS, NOW_MS + 2 * HOUR_MS, NOW_MS - 2 * HOUR_MS])
WINDOW = LogConfig(message_timestamp_before_max_ms=HOUR_MS)
SMALL = LogConfig(max_message_bytes=80)


@given(
    changes=st.dictionaries(st.sampled_from(sorted(HEADER_FIELDS)), TELLING_NUMBERS, max_size=3),
    with_crc=st.booleans(),
    config=st.sampled_from([CONFIG, WINDOW, SMALL, LOG_APPEND_TIME]),
    zstd_allowed=st.booleans(),
    cut=st.sampled_from([0, 0, 0, 1, 20]),
)
def test_the_shortcut_judges_as_the_rules_do(
    changes: dict[int, int], with_crc: bool, config: LogConfig, zstd_allowed: bool, cut: int
) -> None:
    batch = build_batch(records(), producer_id=7, producer_epoch=0, base_sequence=0)
    for position, value in changes.items():
        layout = HEADER_FIELDS[position]
        bits = 8 * struct.calcsize(layout)
        struct.pack_into(
            layout, batch, position, value % (1 << bits) if layout == ">I" else (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        )
    if with_crc:
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    del batch[len(batch) - cut :]

    by_shortcut = judgement(batch, config, zstd_allowed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "_check_usual_batch", lambda *arguments: None)
        by_rules = judgement(batch, config, zstd_allowed)

    assert by_shortcut == by_rules
