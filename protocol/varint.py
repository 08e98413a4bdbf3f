"""Zigzag varints, the numbers within records: seven bits a byte, the lowest first; the high bit says that more bytes follow (ByteUtils)."""

from __future__ import annotations

from .errors import DecodeError

VARINT_BITS = 32
VARLONG_BITS = 64


def read_varint(buffer: bytes, position: int, bits: int = VARINT_BITS) -> tuple[int, int]:
    """Returns a zigzag varint of at most `bits` bits and the position after it."""
    try:
        byte = buffer[position]
        position += 1
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position
        value = byte & 0x7F
        shift = 7
        while byte >= 0x80:
            if shift >= bits:
                raise DecodeError(f"a varint is longer than {bits} bits")
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
    except IndexError as error:
        raise DecodeError("the records end inside a varint") from error
    if value >> bits:
        raise DecodeError(f"a varint is longer than {bits} bits")
    return (value >> 1) ^ -(value & 1), position


def append_varint(out: bytearray, value: int) -> None:
    """Appends a zigzag varint; the value fits 64 bits."""
    value = (value << 1) ^ (value >> 63)
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _encoded_varint(value: int) -> bytes:
    encoded = bytearray()
    append_varint(encoded, value)
    return bytes(encoded)


_VARINTS = tuple(map(_encoded_varint, range(1024)))
NULL_SIZE = _encoded_varint(-1)
"""The size of what is null."""


def encode_varint(value: int) -> bytes:
    """The same as `append_varint` appends."""
    return _VARINTS[value] if 0 <= value < len(_VARINTS) else _encoded_varint(value)
