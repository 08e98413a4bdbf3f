"""The records of a batch as spans of its payload, with their keys: for compaction, which copies most records and reads no value.

Written out like record_outlines, varints of one and two bytes included, because a log is hundreds of millions of records: about 0.6 µs
a record.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.compression import Buffer
from protocol.errors import DecodeError
from protocol.record_outlines import skip_headers
from protocol.records import VARLONG_BITS, read_varint

RecordSpan = tuple[int, int, int, int, int, bytes | None, bool]
"""Where the record starts, where what follows its timestamp starts, where it ends; timestamp delta, offset delta; key; whether it has a
value. A plain tuple: a named one costs half as much again as reading the record."""


def iterate_spans(payload: Buffer, records_count: int) -> Iterator[RecordSpan]:
    """Yields the records in a batch's uncompressed payload; the positions are in `payload`. Keys are copies.

    DecodeError as for `iterate_records`: every length is checked."""
    if records_count < 0:
        raise DecodeError(f"record count {records_count}")
    data = payload if isinstance(payload, bytes) else bytes(payload)
    position, data_end = 0, len(data)
    try:
        for _ in range(records_count):
            start = position
            if (size := data[position]) < 0x80:
                size, position = (size >> 1) ^ -(size & 1), position + 1
            elif (more := data[position + 1]) < 0x80:
                size, position = (size >> 1 & 0x3F | more << 6) ^ -(size & 1), position + 2
            else:
                size, position = read_varint(data, position)
            end = position + size
            if not 0 < size <= data_end - position:
                raise DecodeError(f"a record of {size} bytes, {data_end - position} are left")
            if (timestamp_delta := data[position + 1]) < 0x80:
                timestamp_delta, rest = (timestamp_delta >> 1) ^ -(timestamp_delta & 1), position + 2
            elif (more := data[position + 2]) < 0x80:
                timestamp_delta, rest = (timestamp_delta >> 1 & 0x3F | more << 6) ^ -(timestamp_delta & 1), position + 3
            else:
                timestamp_delta, rest = read_varint(data, position + 1, VARLONG_BITS)
            if (offset_delta := data[rest]) < 0x80:
                offset_delta, position = (offset_delta >> 1) ^ -(offset_delta & 1), rest + 1
            elif (more := data[rest + 1]) < 0x80:
                offset_delta, position = (offset_delta >> 1 & 0x3F | more << 6) ^ -(offset_delta & 1), rest + 2
            else:
                offset_delta, position = read_varint(data, rest)
            if (key_size := data[position]) < 0x80:
                key_size, position = (key_size >> 1) ^ -(key_size & 1), position + 1
            else:
                key_size, position = read_varint(data, position)
            key = None
            if key_size >= 0:
                key = data[position : position + key_size]
                position += key_size
            if (value_size := data[position]) < 0x80:
                value_size, position = (value_size >> 1) ^ -(value_size & 1), position + 1
            elif (more := data[position + 1]) < 0x80:
                value_size, position = (value_size >> 1 & 0x3F | more << 6) ^ -(value_size & 1), position + 2
            else:
                value_size, position = read_varint(data, position)
            if value_size > 0:
                position += value_size
            position = position + 1 if data[position] == 0 else skip_headers(data, position, end)
            if position != end:
                raise DecodeError(f"a record ends {end - position} bytes away from where its size says")
            yield start, rest, end, timestamp_delta, offset_delta, key, value_size >= 0
    except IndexError as error:
        raise DecodeError("the records end inside a record") from error
    if position != data_end:
        raise DecodeError(f"{data_end - position} bytes are left after {records_count} records")
