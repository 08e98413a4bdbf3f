"""The records of a batch in outline: structure, offset, timestamp and whether there is a key, without their keys and values.

The leader's validation and the search for a timestamp look at every record and need no key or value. The loops are written out, because
one batch can have hundreds of thousands of records.
"""

from __future__ import annotations

from collections.abc import Iterator

from .compression import Buffer
from .errors import DecodeError
from .records import BatchHeader
from .varint import VARLONG_BITS, read_varint


def iterate_outlines(header: BatchHeader, payload: Buffer) -> Iterator[tuple[int, int, bool]]:
    """Yields (offset delta, timestamp delta, whether it has a key) of the records in a batch's uncompressed payload.

    DecodeError as for `iterate_records`: every length is checked, nothing is copied."""
    if header.records_count < 0:
        raise DecodeError(f"record count {header.records_count}")
    data = payload if isinstance(payload, bytes) else bytes(payload)
    position, data_end = 0, len(data)
    try:
        for _ in range(header.records_count):
            if (size := data[position]) < 0x80:
                size, position = (size >> 1) ^ -(size & 1), position + 1
            else:
                size, position = read_varint(data, position)
            end = position + size
            if not 0 < size <= data_end - position:
                raise DecodeError(f"a record of {size} bytes, {data_end - position} are left")
            if (timestamp_delta := data[position + 1]) < 0x80:
                timestamp_delta, position = (timestamp_delta >> 1) ^ -(timestamp_delta & 1), position + 2
            else:
                timestamp_delta, position = read_varint(data, position + 1, VARLONG_BITS)
            offset_delta, position = read_varint(data, position)
            if (key_size := data[position]) < 0x80:
                key_size, position = (key_size >> 1) ^ -(key_size & 1), position + 1
            else:
                key_size, position = read_varint(data, position)
            if key_size > 0:
                position += key_size
            if (value_size := data[position]) < 0x80:
                value_size, position = (value_size >> 1) ^ -(value_size & 1), position + 1
            else:
                value_size, position = read_varint(data, position)
            if value_size > 0:
                position += value_size
            position = position + 1 if data[position] == 0 else skip_headers(data, position, end)
            if position != end:
                raise DecodeError(f"a record ends {end - position} bytes away from where its size says")
            yield offset_delta, timestamp_delta, key_size >= 0
    except IndexError as error:
        raise DecodeError("the records end inside a record") from error
    if position != data_end:
        raise DecodeError(f"{data_end - position} bytes are left after {header.records_count} records")


def skip_headers(payload: bytes, position: int, end: int) -> int:
    """The position after a record's headers, which begin at `position` with their count."""
    count, position = read_varint(payload, position)
    if not 0 <= count <= max(end - position, 0) // 2:
        raise DecodeError(f"{count} record headers in {end - position} bytes")
    for _ in range(count):
        size, position = read_varint(payload, position)
        if size < 0:
            raise DecodeError("a record header without a key")
        position += size
        size, position = read_varint(payload, position)
        position += max(size, 0)
    return position
