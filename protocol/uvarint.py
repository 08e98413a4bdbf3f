"""Unsigned varints, and the tagged fields of structs that know none: what flexible versions are made of (KIP-482).

Seven bits a byte, the lowest first; the high bit says that more bytes follow. Kafka has at most five bytes.
"""

from __future__ import annotations

from typing import TypeAlias

from .errors import DecodeError, TooManyEntriesError

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_UVARINT_BYTES = 5

_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))

MAX_TAGGED_FIELDS = 32
"""Of one struct, known and unknown; Kafka's richest has nine. Below 128, so that their count is one byte."""


def uvarint(value: int) -> bytes:
    """Returns the unsigned varint of a value below 2^35: seven bits a byte, the lowest first."""
    if value < 0x80:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Returns an unsigned varint and the position after it."""
    try:
        first = buffer[position]
        return (first, position + 1) if first < 0x80 else rest_of_uvarint(buffer, position + 1, first)
    except IndexError as error:
        raise DecodeError("the buffer ends within a uvarint") from error


def rest_of_uvarint(buffer: Buffer, position: int, value: int) -> tuple[int, int]:
    """Goes on after a first byte that said that more bytes follow. An IndexError is the caller's to turn into a DecodeError."""
    value &= 0x7F
    for shift in range(7, 7 * MAX_UVARINT_BYTES, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError(f"a uvarint has more than {MAX_UVARINT_BYTES} bytes")


def refused_tagged_fields(path: str, count: int) -> DecodeError:
    """What to raise for tagged fields that are more than a struct may have, or else more entries than the budget of their message."""
    error = DecodeError if count > MAX_TAGGED_FIELDS else TooManyEntriesError
    return error(f"{path}: too many tagged fields")


def skip_tagged_fields(buffer: Buffer, position: int, count: int, budget: int) -> tuple[int, int]:
    """Skips the tagged fields of a struct that knows none; returns the position after them and the budget left."""
    if count > MAX_TAGGED_FIELDS or count > budget:
        raise refused_tagged_fields("unknown", count)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise DecodeError("a tagged field is longer than the buffer")
    return position, budget - count
