"""Batches of records as Arrow columns: all records of many batches at once, without a Python object for each.

A first pass walks over the lengths of the records, 0.1 µs each. Everything else is NumPy: the varints of all records, one field after the
other. Keys and values are not touched before Arrow copies them into its columns.

Source: DefaultRecord, DefaultRecordBatch (org.apache.kafka.common.record).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...protocol.compression import Buffer
from ...protocol.errors import DecodeError
from ...protocol.records import BatchHeader
from ...protocol.varint import read_varint
from .arrays import binary_array, fixed_array
from .varints import PADDING, VARLONG_BYTES_MAX, Bytes, Positions, read_varints

TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")
HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
CREATE_TIME, LOG_APPEND_TIME = 0, 1


class Payload(NamedTuple):
    """A batch's header and its records, uncompressed."""

    header: BatchHeader
    data: Buffer


class RecordColumns(NamedTuple):
    """The columns of some records, in the order of their offsets. `timestamp` is UTC in µs; `headers` is null for a record without any."""

    key: pa.Array
    value: pa.Array
    offset: pa.Array
    timestamp: pa.Array
    timestamp_type: pa.Array
    headers: pa.Array


def decode_columns(payloads: Sequence[Payload], *, start_offset: int, end_offset: int) -> RecordColumns:
    """Returns the records with offsets from `start_offset` to `end_offset` (exclusive). The payloads are those of data batches, in order.

    Raises DecodeError where a batch is not what its header says."""
    data = b"".join([*(payload.data for payload in payloads), bytes(PADDING)])
    starts, ends = _places(payloads, data)
    counts = [payload.header.records_count for payload in payloads]

    def of_batches(values: list[int]) -> Positions:
        return np.repeat(np.array(values, np.int64), counts)

    seen = np.frombuffer(data, np.uint8)
    timestamp_delta, position = read_varints(seen, starts + 1, VARLONG_BYTES_MAX)
    offset_delta, position = read_varints(seen, position)
    key_size, key_start = read_varints(seen, position)
    value_size, value_start = read_varints(seen, key_start + np.maximum(key_size, 0))
    headers_count, position = read_varints(seen, value_start + np.maximum(value_size, 0))
    headers = _Headers(seen, headers_count, position)
    _check(payloads, offset_delta, of_batches([payload.header.last_offset_delta for payload in payloads]), headers.ends, ends)
    offset = of_batches([payload.header.base_offset for payload in payloads]) + offset_delta
    is_append_time = of_batches([payload.header.is_log_append_time for payload in payloads]) != 0
    base_timestamp = of_batches([payload.header.base_timestamp for payload in payloads])
    max_timestamp = of_batches([payload.header.max_timestamp for payload in payloads])
    timestamp_ms = np.where(is_append_time, max_timestamp, base_timestamp + timestamp_delta)
    buffer = pa.py_buffer(data)
    columns = RecordColumns(
        _binary(buffer, key_start, key_size),
        _binary(buffer, value_start, value_size),
        fixed_array(offset, pa.int64()),
        fixed_array(timestamp_ms * 1000, TIMESTAMP_TYPE),
        fixed_array(np.where(is_append_time, LOG_APPEND_TIME, CREATE_TIME).astype(np.int32), pa.int32()),
        headers.to_arrow(buffer),
    )
    chosen = np.flatnonzero((offset >= start_offset) & (offset < end_offset))
    if len(chosen) == len(offset):
        return columns
    first, count = (int(chosen[0]), len(chosen)) if len(chosen) else (0, 0)  # offsets ascend, so what is chosen is one run
    return RecordColumns(*(column.slice(first, count) for column in columns))


def _places(payloads: Sequence[Payload], data: bytes) -> tuple[Positions, Positions]:
    """Where each record's attributes are, and where it ends."""
    starts: list[int] = []
    sizes: list[int] = []
    end = 0
    for header, payload in payloads:
        position, end = end, end + len(payload)
        if header.records_count < 0:
            raise DecodeError(f"record count {header.records_count}")
        for _ in range(header.records_count):  # the only loop over records: zigzag sizes of one and two bytes are written out
            size = data[position]
            if size < 0x80:
                position += 1
            elif (second := data[position + 1]) < 0x80:
                size += (second << 7) - 0x80
                position += 2
            else:
                size, position = read_varint(data, position)
                size <<= 1
            if size & 1 or not 0 < size <= (end - position) << 1:
                raise DecodeError(f"a record of {(size >> 1) ^ -(size & 1)} bytes, {end - position} are left")
            size >>= 1
            starts.append(position)
            sizes.append(size)
            position += size
        if position != end:
            raise DecodeError(f"{end - position} bytes are left after {header.records_count} records")
    found = np.array(starts, np.int64)
    return found, found + np.array(sizes, np.int64)


def _check(payloads: Sequence[Payload], offset_delta: Positions, last_delta: Positions, read_to: Positions, ends: Positions) -> None:
    """Each record ends where its length says, and has an offset of its batch, after that of the record before."""
    wrong = np.flatnonzero(read_to != ends)
    if len(wrong):
        raise DecodeError(f"a record ends {int(ends[wrong[0]] - read_to[wrong[0]])} bytes away from where its size says")
    if len(offset_delta) and (offset_delta.min() < 0 or (offset_delta > last_delta).any()):
        raise DecodeError("an offset delta is beyond the batch's last one")
    bases = np.repeat(np.array([header.base_offset for header, _ in payloads], np.int64), [header.records_count for header, _ in payloads])
    if (np.diff(bases + offset_delta) <= 0).any():
        raise DecodeError("offsets do not ascend")


def _binary(buffer: pa.Buffer, starts: Positions, sizes: Positions) -> pa.Array:
    """The column of the byte strings at `starts` of the buffer, which ascend; null where the size is negative.

    The buffer is seen as twice as many strings, the gaps included, of which every second one is taken."""
    count = len(starts)
    if not count:
        return pa.nulls(0, pa.binary())
    edges = np.empty(2 * count + 1, np.int64)
    edges[0] = 0
    edges[1::2] = starts
    edges[2::2] = starts + np.maximum(sizes, 0)
    if edges[-1] > buffer.size or (np.diff(edges) < 0).any():
        raise DecodeError("a key or a value is longer than its record")
    if buffer.size >= 1 << 31:
        raise DecodeError("more than 2 GB of records at once")
    strings = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges.astype(np.int32)), buffer])
    places = np.arange(1, 2 * count, 2)
    is_null = sizes < 0
    return strings.take(fixed_array(places, pa.int64(), is_null if is_null.any() else None))


class _Headers:
    """The headers of all records. `ends` is where each record's last one ends."""

    def __init__(self, seen: Bytes, counts: Positions, positions: Positions) -> None:
        if len(counts) and counts.min() < 0:
            raise DecodeError("a negative number of headers")
        self._counts = counts
        self.ends = positions
        rows: list[Positions] = []
        found: list[tuple[Positions, Positions, Positions, Positions]] = []
        left = np.flatnonzero(counts)
        number = 0
        while len(left):
            key_size, key_start = read_varints(seen, self.ends[left])
            if key_size.min() < 0:
                raise DecodeError("a header without a key")
            value_size, value_start = read_varints(seen, key_start + key_size)
            self.ends[left] = np.minimum(value_start + np.maximum(value_size, 0), len(seen))
            rows.append(left)
            found.append((key_start, key_size, value_start, value_size))
            number += 1
            left = left[(counts[left] > number) & (self.ends[left] < len(seen) - PADDING)]
            # A record that claims more headers than there are bytes ends elsewhere than its length says.
        self._rows = rows
        self._found = found

    def to_arrow(self, buffer: pa.Buffer) -> pa.Array:
        """Call it once the ends have been checked."""
        if not self._rows:
            return pa.nulls(len(self._counts), HEADERS_TYPE)
        order = np.argsort(np.concatenate(self._rows), kind="stable")
        key_start, key_size, value_start, value_size = (np.concatenate(part)[order] for part in zip(*self._found, strict=True))
        if len(key_start) != self._counts.sum():
            raise DecodeError("a record has fewer headers than it says")
        keys = _binary(buffer, key_start, key_size)
        try:
            keys = keys.cast(pa.string())
        except pa.ArrowInvalid:  # a key that is not UTF-8 is read with replacement characters, as Kafka's clients do
            keys = binary_array([key.decode(errors="replace").encode() for key in keys.to_pylist()], pa.string())
        pairs = pa.StructArray.from_arrays([keys, _binary(buffer, value_start, value_size)], fields=list(HEADERS_TYPE.value_type))
        offsets = np.concatenate([[0], np.cumsum(self._counts)]).astype(np.int32)
        validity = np.packbits(self._counts > 0, bitorder="little")
        return pa.Array.from_buffers(HEADERS_TYPE, len(self._counts), [pa.py_buffer(validity), pa.py_buffer(offsets)], children=[pairs])
