"""The records of a batch as spans of its payload, with their keys: for compaction, which copies most records and reads no value.

Written out like record_outlines, varints of one and two bytes included, because a log is hundreds of millions of records: about 0.6 µs
a record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import repeat

from protocol.compression import Buffer
from protocol.errors import DecodeError
from protocol.record_outlines import skip_headers
from protocol.records import VARLONG_BITS, read_varint

RecordSpan = tuple[int, int, int, int, int, bytes | None, bool]
"""Where the record starts, where what follows its timestamp starts, where it ends; timestamp delta, offset delta; key; whether it has a
value. A plain tuple: a named one costs half as much again as reading the record."""


_COMMON_HEAD = struct.Struct(">BBxBBB")
"""A record's size, attributes, timestamp delta, offset delta and key's size, where the varint of the size is two bytes and each other one:
one call instead of six looks."""

_COMMON_LATER_HEAD = struct.Struct(">BBxBBBB")
"""The same from a batch's 64th record on, whose offset delta is of two bytes."""

_LATER_PLACE, _LATER_PLACES_END = 64, 8192


def iterate_spans(payload: Buffer, records_count: int, skipped: Iterable[int] | None = None) -> Iterator[RecordSpan]:
    """Yields the records in a batch's uncompressed payload; the positions are in `payload`. Keys are copies.

    `skipped` has 1 for each record that is to be left out, else 0; of such a record only the size is looked at. DecodeError as for
    `iterate_records`: every other length is checked."""
    if records_count < 0:
        raise DecodeError(f"record count {records_count}")
    data = payload if isinstance(payload, bytes) else bytes(payload)
    position, data_end = 0, len(data)
    try:
        for is_skipped in repeat(0, records_count) if skipped is None else skipped:
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
            if is_skipped:
                position = end
                continue
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


def list_keys(payload: Buffer, records_count: int) -> tuple[list[bytes | None], list[int] | None]:
    """The keys of the records in a batch's uncompressed payload, and their offset deltas; None for these where each is the record's
    place. At most half the time of `iterate_spans`, because nothing behind a key is looked at.

    DecodeError when a record or its key is not whole."""
    if records_count < 0:
        raise DecodeError(f"record count {records_count}")
    data = payload if isinstance(payload, bytes) else bytes(payload)
    data_end = len(data)
    keys: list[bytes | None] = []
    deltas: list[int] | None = None
    try:
        position = _list_common_keys(data, records_count, keys)
        for place in range(len(keys), records_count):
            if (size := data[position]) < 0x80:
                size, position = (size >> 1) ^ -(size & 1), position + 1
            elif (more := data[position + 1]) < 0x80:
                size, position = (size >> 1 & 0x3F | more << 6) ^ -(size & 1), position + 2
            else:
                size, position = read_varint(data, position)
            end = position + size
            if not 0 < size <= data_end - position:
                raise DecodeError(f"a record of {size} bytes, {data_end - position} are left")
            if data[position + 1] < 0x80:
                position += 2
            elif data[position + 2] < 0x80:
                position += 3
            else:
                _, position = read_varint(data, position + 1, VARLONG_BITS)
            if (offset_delta := data[position]) < 0x80:
                offset_delta, position = (offset_delta >> 1) ^ -(offset_delta & 1), position + 1
            elif (more := data[position + 1]) < 0x80:
                offset_delta, position = (offset_delta >> 1 & 0x3F | more << 6) ^ -(offset_delta & 1), position + 2
            else:
                offset_delta, position = read_varint(data, position)
            if (key_size := data[position]) < 0x80:
                key_size, position = (key_size >> 1) ^ -(key_size & 1), position + 1
            else:
                key_size, position = read_varint(data, position)
            key_end = position + key_size if key_size > 0 else position
            if key_end > end:
                raise DecodeError(f"a key ends {key_end - end} bytes behind its record")
            keys.append(data[position:key_end] if key_size >= 0 else None)
            if deltas is not None:
                deltas.append(offset_delta)
            elif offset_delta != place:
                deltas = [*range(place), offset_delta]
            position = end
    except (IndexError, struct.error) as error:
        raise DecodeError("the records end inside a record") from error
    if position != data_end:
        raise DecodeError(f"{data_end - position} bytes are left after {records_count} records")
    return keys, deltas


def _list_common_keys(data: bytes, records_count: int, keys: list[bytes | None]) -> int:
    """Add to `keys` those of the first records, as far as each lies at its place and has a common head; returns where the next begins."""
    position, unpack = 0, _COMMON_HEAD.unpack_from
    for place in range(min(records_count, _LATER_PLACE)):
        low, high, timestamp, offset_delta, key_size = unpack(data, position)
        if low & 0x81 != 0x80 or (high | timestamp | key_size) >= 0x80 or key_size & 1 or offset_delta != place + place:
            return position
        key_start = position + 6
        end = position + 2 + (low >> 1 & 0x3F | high << 6)
        key_end = key_start + (key_size >> 1)
        if key_end > end:
            return position  # which is refused there
        keys.append(data[key_start:key_end])
        position = end
    unpack = _COMMON_LATER_HEAD.unpack_from
    for place in range(_LATER_PLACE, min(records_count, _LATER_PLACES_END)):
        low, high, timestamp, delta_low, delta_high, key_size = unpack(data, position)
        if low & 0x81 != 0x80 or (high | timestamp | key_size) >= 0x80 or key_size & 1:
            return position
        if delta_low & 0x80 == 0 or delta_high >= 0x80 or delta_low & 0x7F | delta_high << 7 != place + place:
            return position
        key_start = position + 7
        end = position + 2 + (low >> 1 & 0x3F | high << 6)
        key_end = key_start + (key_size >> 1)
        if key_end > end:
            return position
        keys.append(data[key_start:key_end])
        position = end
    return position
