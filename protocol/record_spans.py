"""The records of a batch as spans of its payload, with their keys: for compaction, which copies most records and reads no value.

Written out like record_outlines, varints of one and two bytes included, because a log is hundreds of millions of records: about 0.6 µs
a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import compress, repeat
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from .compression import Buffer
from .errors import DecodeError
from .record_outlines import skip_headers
from .varint import VARLONG_BITS, read_varint

RecordSpan = tuple[int, int, int, int, int, bytes | None, bool]
"""Where the record starts, where what follows its timestamp starts, where it ends; timestamp delta, offset delta; key; whether it has a
value. A plain tuple: a named one costs half as much again as reading the record."""


_NO_SIZE = 1 << 30  # of a key whose size is not one byte, or that is null: no record has room for it
_ONE_BYTE_PLACES, _TWO_BYTE_PLACES = 64, 8_192  # places of records whose offset delta has so many bytes, where it is the place
_ALIKE_RECORDS = 4  # fewer records of one kind are not worth their preparation
_UNLIKE_RECORDS = 8  # that are read one by one where records were not alike
_KINDS_KEPT = 16  # half a megabyte each at most

_LAYOUTS = {
    (1, 1): ("I", 0x00_80_81_FF, 0x00_00_00_00, 0x00_00_FF_00),
    (1, 2): ("xI", 0x80_81_80_FF, 0x00_80_00_00, 0x00_FF_FF_00),
    (2, 1): ("xI", 0x80_80_81_FF, 0x80_00_00_00, 0x00_00_FF_00),
    (2, 2): ("xxI", 0x80_81_80_FF, 0x00_80_00_00, 0x00_FF_FF_00),
}
"""The head of a record, the four bytes that end with its key's size, by the widths of its timestamp delta and its offset delta: the format
from the attributes to the head; the bits that tell these widths, and the key's size; what they are; the offset delta's bits. In a varint
each byte but the last has its highest bit, and the first one of a negative number its lowest."""


class _Kind(NamedTuple):
    """Records that are read with one call each: they have varints of the same widths, and keys of the same size.

    `unpack` returns the bytes of the size, the head, the key, the first byte of the value's size. The record is of this kind if `mask`
    leaves `mark` of its head; with `place_mask`, which leaves one of `places`, its offset delta is its place too. `steps` is the length of
    a record by the bytes of its size; such a record has at least `size_bytes_min`."""

    unpack: Callable[[bytes, int], tuple[int, int, bytes, int]]
    steps: list[int]
    size_bytes_min: int
    mask: int
    mark: int
    place_mask: int
    places: list[int]


@lru_cache(_KINDS_KEPT)
def _kind(size_bytes: int, timestamp_bytes: int, delta_bytes: int, key_byte: int) -> _Kind:
    layout, mask, mark, delta_mask = _LAYOUTS[timestamp_bytes, delta_bytes]
    unpack = Struct(f">{'B' if size_bytes == 1 else 'H'}{layout}{key_byte >> 1}sB")
    if delta_bytes == 1:
        deltas = [2 * place for place in range(_ONE_BYTE_PLACES)]
    else:
        deltas = [(2 * place & 0x7F | 0x80) << 8 | place >> 6 for place in range(_ONE_BYTE_PLACES, _TWO_BYTE_PLACES)]
    mark |= key_byte
    places = [mark & ~delta_mask | delta << 8 for delta in deltas]
    return _Kind(unpack.unpack_from, _STEPS[size_bytes], unpack.size + 1, mask, mark, mask | delta_mask, places)


def _two_byte_steps() -> list[int]:
    steps = [0] * 0x1_00_00
    for low in range(0x80, 0x100, 2):  # an odd one is negative
        shortest = (low >> 1 & 0x3F) + 2
        steps[low << 8 : (low << 8) + 0x80] = range(shortest, shortest + 64 * 0x80, 64)
    return steps


_STEPS = {1: [0 if byte & 0x81 else (byte >> 1) + 1 for byte in range(0x100)], 2: _two_byte_steps()}


def iterate_spans(payload: Buffer, records_count: int, chosen: Iterable[int] | None = None) -> Iterator[RecordSpan]:
    """Yields the records in a batch's uncompressed payload; the positions are in `payload`. Keys are copies.

    `chosen` has 0 for each record that is to be left out, else 1; of the former only the size is looked at. DecodeError as for
    `iterate_records`: every other length is checked."""
    if records_count < 0:
        raise DecodeError(f"record count {records_count}")
    data = payload if isinstance(payload, bytes) else bytes(payload)
    position, data_end = 0, len(data)
    try:
        for is_chosen in repeat(1, records_count) if chosen is None else chosen:
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
            if not is_chosen:
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


KeyList = tuple[list[bytes | None], list[int] | None, bool]
"""The keys of a batch's records, None for those without; their offset deltas, None for these where each is the record's place; whether the
value of one is null. A plain tuple for the same reason."""


def list_keys(data: bytes, records_count: int, start: int = 0, end: int | None = None) -> KeyList:
    """The keys of the records in `data[start:end]`, a batch's uncompressed payload. Less than half the time of `iterate_spans`, because
    nothing behind a key is looked at but the sign of the value's size.

    DecodeError when a record or its key is not whole."""
    if records_count < 0:
        raise DecodeError(f"record count {records_count}")
    data_end = len(data) if end is None else end
    keys: list[bytes | None] = []
    deltas: list[int] | None = None
    position, place, signs, alike_from = start, 0, 0, 0
    try:
        while place < records_count:
            if place >= alike_from:
                position, signs = _list_keys_alike(data, position, records_count, keys, deltas, signs)
                alike_from = len(keys) + (0 if len(keys) >= place + _ALIKE_RECORDS else _UNLIKE_RECORDS)
                place = len(keys)
                continue
            if (size := data[position]) < 0x80:
                size, position = (size >> 1) ^ -(size & 1), position + 1
            elif (more := data[position + 1]) < 0x80:
                size, position = (size >> 1 & 0x3F | more << 6) ^ -(size & 1), position + 2
            else:
                size, position = read_varint(data, position)
            record_end = position + size
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
            if key_end >= record_end:
                raise DecodeError(f"a key ends {key_end - record_end} bytes behind its record")
            keys.append(data[position:key_end] if key_size >= 0 else None)
            signs |= data[key_end]
            if deltas is not None:
                deltas.append(offset_delta)
            elif offset_delta != place:
                deltas, alike_from = [*range(place), offset_delta], 0
            position, place = record_end, place + 1
    except IndexError as error:
        raise DecodeError("the records end inside a record") from error
    if position != data_end:
        raise DecodeError(f"{data_end - position} bytes are left after {records_count} records")
    return keys, deltas, signs & 1 == 1


def _list_keys_alike(
    data: bytes, position: int, records_count: int, keys: list[bytes | None], deltas: list[int] | None, signs: int
) -> tuple[int, int]:
    """Add to `keys` those of the next records, as long as each is of the first one's kind, and lies at its place or, with `deltas`,
    anywhere. Returns where the next record begins, and `signs` with the first bytes of the values' sizes: their lowest bit is the sign."""
    place = len(keys)
    size_bytes = 1 if data[position] < 0x80 else 2
    timestamp_bytes = 1 if data[position + size_bytes + 1] < 0x80 else 2
    delta_position = position + size_bytes + 1 + timestamp_bytes
    delta_bytes = 1 if data[delta_position] < 0x80 else 2
    if (key_byte := data[delta_position + delta_bytes]) & 0x81:  # no key, or one of more than 63 bytes
        return position, signs
    unpack, steps, size_bytes_min, mask, mark, place_mask, places = _kind(size_bytes, timestamp_bytes, delta_bytes, key_byte)
    expected: Iterable[int] = repeat(mark, records_count - place)
    if deltas is None:
        first_place = 0 if delta_bytes == 1 else _ONE_BYTE_PLACES
        if place < first_place:
            return position, signs
        mask, expected = place_mask, places[place - first_place : records_count - first_place]
    add_key, heads = keys.append, list[int]()
    try:
        for value in expected:
            size, head, key, sign = unpack(data, position)
            if head & mask != value or (step := steps[size]) < size_bytes_min:
                break
            add_key(key)
            if deltas is not None:
                heads.append(head)
            signs |= sign
            position += step
    except struct_error:  # the last record is shorter than those of this kind; suppress() would cost as much as two records
        pass
    if deltas is not None and delta_bytes == 1:
        deltas += [head >> 9 & 0x3F for head in heads]
    elif deltas is not None:
        deltas += [head >> 17 & 0x3F | (head >> 8 & 0x7F) << 6 for head in heads]
    return position, signs


def find_records(data: bytes, staying: bytes, start: int = 0) -> list[tuple[int, int, int, int]]:
    """The records of which `staying`, a byte for each record of a batch, has 1: where each starts, where what follows its timestamp
    starts, where it ends; timestamp delta. Their uncompressed payload begins at `data[start]`, and `list_keys` has accepted it."""
    ends = [start]
    add, position = ends.append, start
    for _ in range(staying.rfind(1) + 1):
        if (size := data[position]) < 0x80:
            position += (size >> 1) + 1
        elif (more := data[position + 1]) < 0x80:
            position += (size >> 1 & 0x3F | more << 6) + 2
        else:
            size, position = read_varint(data, position)
            position += size
        add(position)
    records = []
    for place in compress(range(len(staying)), staying):
        begin = position = ends[place]
        while data[position] >= 0x80:  # the size
            position += 1
        position += 2
        if (timestamp_delta := data[position]) < 0x80:
            timestamp_delta, position = (timestamp_delta >> 1) ^ -(timestamp_delta & 1), position + 1
        elif (more := data[position + 1]) < 0x80:
            timestamp_delta, position = (timestamp_delta >> 1 & 0x3F | more << 6) ^ -(timestamp_delta & 1), position + 2
        else:
            timestamp_delta, position = read_varint(data, position, VARLONG_BITS)
        records.append((begin, position, ends[place + 1], timestamp_delta))
    return records
