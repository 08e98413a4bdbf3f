"""Batches of records to Arrow columns and back, compared with the broker's own codec, which reads one record after another."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from barnabas.protocol.compression import Compression
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.records import HEADER_SIZE, SimpleRecord, build_batch, iterate_records, read_header, read_payload
from barnabas.spark.records.decode import HEADERS_TYPE, Payload, RecordColumns, decode_columns
from barnabas.spark.records.encode import encode_batches

Rows = list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]
EVERYTHING = 2**62
SIZES = (0, 1, 63, 64, 8_191, 8_192, 70_000)
BASE_MS = 1_700_000_000_000


def some_bytes(draw: random.Random, size_max: int) -> bytes | None:
    return draw.choice((None, b"", draw.randbytes(draw.randrange(size_max + 1))))


def some_records(draw: random.Random, count: int, size_max: int, headers_max: int) -> list[SimpleRecord]:
    def headers() -> tuple[tuple[str, bytes | None], ...]:
        return tuple((draw.choice(("", "a", "schlüssel")), some_bytes(draw, 100)) for _ in range(draw.randint(0, headers_max)))

    return [
        SimpleRecord(some_bytes(draw, 70), some_bytes(draw, size_max), headers(), timestamp=BASE_MS + draw.randint(-(10**7), 10**7))
        for _ in range(count)
    ]


def payload_of(batch: bytes) -> Payload:
    header = read_header(batch)
    return Payload(header, bytes(read_payload(batch, 0, header)))


def rows_of(columns: RecordColumns) -> Rows:
    headers = [tuple((each["key"], each["value"]) for each in row or ()) for row in columns.headers.to_pylist()]
    times = columns.timestamp.cast(pa.int64()).to_pylist()
    assert all(time % 1000 == 0 for time in times)
    lists = (columns.offset.to_pylist(), [time // 1000 for time in times], columns.key.to_pylist(), columns.value.to_pylist(), headers)
    return list(zip(*lists, strict=True))


def decoded(*batches: bytes, start: int = 0, end: int = EVERYTHING) -> Rows:
    return rows_of(decode_columns([payload_of(batch) for batch in batches], start_offset=start, end_offset=end))


@pytest.mark.parametrize("codec", list(Compression))
def test_columns_have_what_the_batches_have(codec: Compression) -> None:
    draw = random.Random(codec)
    batches, offset = [], 0
    for count, size_max, headers_max in ((1, 10, 0), (300, 200, 3), (40, 9_000, 0), (3, 70_000, 1), (2_000, 5, 0)):
        records = some_records(draw, count, size_max, headers_max)
        batches.append(bytes(build_batch(records, base_offset=offset, compression=codec)))
        offset += count + draw.randrange(3)  # a gap

    assert decoded(*batches) == [tuple(record) for batch in batches for record in iterate_records(batch)]


def test_log_append_time_is_that_of_all_records() -> None:
    batch = bytes(build_batch([SimpleRecord(None, b"a", timestamp=5), SimpleRecord(None, b"b", timestamp=6)], log_append_time_ms=BASE_MS))
    columns = decode_columns([payload_of(batch)], start_offset=0, end_offset=EVERYTHING)

    assert columns.timestamp.cast(pa.int64()).to_pylist() == [BASE_MS * 1000] * 2
    assert columns.timestamp_type.to_pylist() == [1, 1]


def test_only_asked_offsets_are_there() -> None:
    batch = bytes(build_batch([SimpleRecord(None, str(number).encode(), timestamp=5) for number in range(10)], base_offset=100))

    assert [row[0] for row in decoded(batch, start=103, end=106)] == [103, 104, 105]
    assert decoded(batch, start=110) == decoded(batch, end=100) == decoded() == []


def test_a_damaged_payload_is_an_error_and_never_another_row() -> None:
    """A changed byte may give other rows where it lies in a key, a value or a time: the CRC is the reader's. The structure is checked."""
    draw = random.Random(1)
    batch = bytes(build_batch(some_records(draw, 30, 20, 2)))
    header, data = payload_of(batch)
    refused = 0
    for cut in range(len(data)):
        with pytest.raises(DecodeError):
            decode_columns([Payload(header, data[:cut])], start_offset=0, end_offset=EVERYTHING)
    for _ in range(2_000):
        changed = bytearray(data)
        changed[draw.randrange(len(data))] = draw.randrange(256)
        wanted = None
        try:
            wanted = [tuple(record) for record in iterate_records(batch[:HEADER_SIZE] + bytes(changed))]
        except DecodeError:
            refused += 1
        try:
            found = rows_of(decode_columns([Payload(header, bytes(changed))], start_offset=0, end_offset=EVERYTHING))
        except (DecodeError, OverflowError):  # an offset twice is refused here alone
            continue
        assert found == wanted
    assert refused > 100


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("headers_max", [0, 3])
def test_batches_have_what_the_columns_have(codec: Compression, headers_max: int) -> None:
    draw = random.Random(headers_max)
    records = [record for size in SIZES for record in some_records(draw, 40, size, headers_max)]
    key, value = (pa.array(values, pa.binary()) for values in ([each.key for each in records], [each.value for each in records]))
    pairs = [[{"key": name, "value": told} for name, told in each.headers] or draw.choice((None, [])) for each in records]
    headers = pa.array(pairs, HEADERS_TYPE)
    times = np.array([each.timestamp for each in records], np.int64)
    skipped = 7  # of columns that are slices of others

    found: list[SimpleRecord] = []
    for batch in encode_batches(key[skipped:], value[skipped:], headers[skipped:], times[skipped:], batch_bytes=50_000, codec=codec):
        data = batch.to_bytes(producer_id=7, producer_epoch=3, sequence=len(found))
        header = read_header(data)
        assert header.size_bytes == len(data) == batch.size_bytes
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, len(found))
        assert header.is_transactional
        found += [SimpleRecord(each.key, each.value, each.headers, timestamp=each.timestamp) for each in iterate_records(data)]

    assert found == records[skipped:]


def test_a_batch_is_not_larger_than_asked_unless_one_row_is() -> None:
    value = pa.array([b"x" * 900] * 100 + [b"y" * 30_000], pa.binary())
    key = pa.nulls(len(value), pa.binary())
    times = np.full(len(value), BASE_MS, np.int64)

    sizes = [batch.size_bytes for batch in encode_batches(key, value, None, times, batch_bytes=10_000, codec=Compression.NONE)]

    assert len(sizes) == 11
    assert all(9_000 < size <= 10_000 for size in sizes[:-2])
    assert sizes[-1] > 30_000
