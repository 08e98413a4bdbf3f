"""Arrow columns as batches of records: all records of a batch at once, without a Python object for each.

A record is the join of a few byte strings: what comes before the key, the key, the value's size, the value, the headers. NumPy writes the
varints of all records; Arrow joins the strings.

Source: DefaultRecord, DefaultRecordBatch (org.apache.kafka.common.record).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.compression import Compression, compress
from ...protocol.records import HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2, TRANSACTIONAL_FLAG, BatchHeader, assemble_batch
from .arrays import binary_array, numbers_of
from .varints import Bytes, Positions, varint_sizes, write_varints

EMPTY, NO_HEADERS = binary_array([b"", b"\0"])
RECORD_OVERHEAD_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""Bytes of a record besides its key, value and headers, at most."""


class Batch(NamedTuple):
    """A batch to be sent, whose producer's fields are not set yet: they are the sender's."""

    header: BatchHeader
    payload: bytes
    """Compressed."""

    @property
    def records_count(self) -> int:
        return self.header.records_count

    @property
    def size_bytes(self) -> int:
        return HEADER_SIZE + len(self.payload)

    def to_bytes(self, *, producer_id: int, producer_epoch: int, sequence: int) -> bytes:
        """The batch of a transaction's producer."""
        header = self.header._replace(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence)
        return bytes(assemble_batch(header, self.payload))


def encode_batches(
    key: pa.Array, value: pa.Array, headers: pa.Array | None, timestamps_ms: Positions, *, batch_bytes: int, codec: Compression
) -> Iterator[Batch]:
    """Yields batches of the rows, in order, each of at most `batch_bytes` uncompressed, unless a single row is larger.

    `key` and `value` are of the type binary, `headers` of HEADERS_TYPE (decode.py) or None. `timestamps_ms` has one for each row."""
    header_bytes = None if headers is None or headers.null_count == len(headers) else _headers(headers)
    sizes = _lengths(key) + _lengths(value) + (1 if header_bytes is None else _lengths(header_bytes)) + RECORD_OVERHEAD_MAX
    total = np.cumsum(sizes)
    first = 0
    while first < len(key):
        before = int(total[first - 1]) if first else 0
        last = max(int(np.searchsorted(total, before + batch_bytes - HEADER_SIZE, side="right")), first + 1)
        count = last - first
        part = None if header_bytes is None else header_bytes.slice(first, count)
        yield _encode(key.slice(first, count), value.slice(first, count), part, timestamps_ms[first:last], codec)
        first = last


def _encode(key: pa.Array, value: pa.Array, header_bytes: pa.Array | None, timestamps_ms: Positions, codec: Compression) -> Batch:
    count = len(key)
    base_ms = int(timestamps_ms[0])
    key_size, value_size = _sizes(key), _sizes(value)
    fixed = [timestamps_ms - base_ms, np.arange(count), key_size]
    value_size_bytes = varint_sizes(value_size)
    record_size = 1 + sum(varint_sizes(values) for values in fixed) + np.maximum(key_size, 0) + value_size_bytes + np.maximum(value_size, 0)
    record_size += 1 if header_bytes is None else _lengths(header_bytes)
    head = _joined_varints([record_size, None, *fixed])
    pieces = [head, key.fill_null(EMPTY), _joined_varints([value_size]), value.fill_null(EMPTY)]
    records = pc.binary_join_element_wise(*pieces, NO_HEADERS if header_bytes is None else header_bytes, EMPTY)
    _, offsets, data = records.buffers()
    start, end = np.frombuffer(offsets, np.int32)[[records.offset, records.offset + count]]
    payload = compress(codec, memoryview(data)[start:end])
    header = BatchHeader(
        base_offset=0,
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
        partition_leader_epoch=-1,
        magic=MAGIC_V2,
        crc=0,
        attributes=codec | TRANSACTIONAL_FLAG,
        last_offset_delta=count - 1,
        base_timestamp=base_ms,
        max_timestamp=int(timestamps_ms.max()),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=count,
    )
    return Batch(header, payload)


def row_texts(key: pa.Array, value: pa.Array, headers: pa.Array | None) -> pa.Array:
    """One byte string a row that has all of it: equal for equal rows, different for others."""
    pieces = [_joined_varints([_sizes(key), _sizes(value)]), key.fill_null(EMPTY), value.fill_null(EMPTY)]
    if headers is not None and headers.null_count < len(headers):
        pieces.append(_headers(headers))
    return pc.binary_join_element_wise(*pieces, EMPTY)


def _headers(headers: pa.Array) -> pa.Array:
    """The bytes of each row's headers, their number included."""
    counts = numbers_of(pc.list_value_length(headers), 0)
    pairs = headers.flatten()
    if not len(pairs):
        return pa.repeat(NO_HEADERS, len(headers))
    keys, values = pairs.field(0).cast(pa.binary()), pairs.field(1)
    texts = pc.binary_join_element_wise(
        _joined_varints([_sizes(keys)]), keys, _joined_varints([_sizes(values)]), values.fill_null(EMPTY), EMPTY
    )
    edges = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    _, offsets, data = texts.buffers()
    places = np.frombuffer(offsets, np.int32)[texts.offset + edges]
    of_rows = pa.Array.from_buffers(pa.binary(), len(headers), [None, pa.py_buffer(places.astype(np.int32)), data])
    return pc.binary_join_element_wise(_joined_varints([counts]), of_rows, EMPTY)


def _joined_varints(columns: list[Positions | None]) -> pa.Array:
    """One byte string a row: the varints of its values, one after another. None stands for a zero byte (a record's attributes)."""
    count = next(len(values) for values in columns if values is not None)
    sizes = [np.ones(count, np.int64) if values is None else varint_sizes(values) for values in columns]
    edges = np.concatenate([[0], np.cumsum(sum(sizes))])
    out: Bytes = np.zeros(int(edges[-1]), np.uint8)
    positions = edges[:-1]
    for values in columns:
        positions = positions + 1 if values is None else write_varints(out, positions, values)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(out)])


def _lengths(column: pa.Array) -> Positions:
    return numbers_of(pc.binary_length(column), 0)


def _sizes(column: pa.Array) -> Positions:
    """The length of each string, -1 for null."""
    return numbers_of(pc.binary_length(column), -1)
