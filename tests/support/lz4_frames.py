"""LZ4 frames made by hand: every field may be as no library writes it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

MAGIC = 0x184D2204
VERSION_1 = 0x40
INDEPENDENT = 0x20
BLOCK_CHECKSUM = 0x10
CONTENT_SIZE = 0x08
CONTENT_CHECKSUM = 0x04
UNCOMPRESSED = 1 << 31
"""The bit of a block's size that says that the block is as it is."""

_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK = 0xFFFFFFFF


def lz4_frame(
    data: bytes,
    *,
    magic: int = MAGIC,
    flags: int = VERSION_1 | INDEPENDENT,
    block_size_code: int = 0x40,
    content_size: int | None = None,
    header_checksum: int | None = None,
    block_checksum: int | None = None,
    content_checksum: int | None = None,
    blocks: Sequence[bytes] | None = None,
    end: bytes = bytes(4),
) -> bytes:
    """A frame of `data` in one uncompressed block. `blocks` come with their sizes and without checksums."""
    descriptor = bytes([flags, block_size_code])
    if flags & CONTENT_SIZE:
        descriptor += struct.pack("<Q", len(data) if content_size is None else content_size)
    checksum = xxh32(descriptor) >> 8 & 0xFF if header_checksum is None else header_checksum
    frame = struct.pack("<I", magic) + descriptor + bytes([checksum])
    for block in [stored_block(data)] if blocks is None else blocks:
        frame += block
        if flags & BLOCK_CHECKSUM:
            frame += struct.pack("<I", xxh32(block[4:]) if block_checksum is None else block_checksum)
    frame += end
    if flags & CONTENT_CHECKSUM and end:
        frame += struct.pack("<I", xxh32(data) if content_checksum is None else content_checksum)
    return frame


def stored_block(data: bytes) -> bytes:
    return struct.pack("<I", len(data) | UNCOMPRESSED) + data


def compressed_block(block: bytes) -> bytes:
    return struct.pack("<I", len(block)) + block


def xxh32(data: bytes) -> int:
    """The checksum of LZ4's frame format, with seed 0."""
    first, second, third, fourth, fifth = _PRIMES
    position = 0
    if len(data) >= 16:
        lanes = [first + second & _MASK, second, 0, -first & _MASK]
        for position in range(0, len(data) - 15, 16):
            words = struct.unpack_from("<4I", data, position)
            lanes = [_rotate(lane + word * second & _MASK, 13) * first & _MASK for lane, word in zip(lanes, words, strict=True)]
        position += 16
        total = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    else:
        total = fifth
    total = total + len(data) & _MASK
    while position + 4 <= len(data):
        total = _rotate(total + int.from_bytes(data[position : position + 4], "little") * third & _MASK, 17) * fourth & _MASK
        position += 4
    for byte in data[position:]:
        total = _rotate(total + byte * fifth & _MASK, 11) * first & _MASK
    total = (total ^ total >> 15) * second & _MASK
    total = (total ^ total >> 13) * third & _MASK
    return total ^ total >> 16


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK
