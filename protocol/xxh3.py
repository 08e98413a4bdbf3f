"""XXH3, the hash of 64 bits with seed 0, by which Kafka tells whether a group's topics changed (KIP-1101).

In Python because nothing else here needs it, and what is hashed is short: 60 bytes for a topic of three partitions take 5 µs. What is
long takes 50 µs for a KB, and is hashed in pieces.

Source: xxHash's XXH3_64bits, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
"""

from __future__ import annotations

import struct
from collections.abc import Generator

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_MASK = (1 << 64) - 1
_MASK_32 = (1 << 32) - 1

_PRIME_32_1, _PRIME_32_2, _PRIME_32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME_64_1 = 0x9E3779B185EBCA87
_PRIME_64_2 = 0xC2B2AE3D27D4EB4F
_PRIME_64_3 = 0x165667B19E3779F9
_PRIME_64_4 = 0x85EBCA77C2B2AE63
_PRIME_64_5 = 0x27D4EB2F165667C5
_PRIME_MIX_1 = 0x165667919E3779F9
_PRIME_MIX_2 = 0x9FB21C651E98DF25

_STRIPE_SIZE = 64
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE_SIZE) // 8
_BLOCK_SIZE = _STRIPE_SIZE * _STRIPES_PER_BLOCK

_LANES = struct.Struct("<8Q")

BLOCKS_PER_PIECE = 8
"""8 KB between two yields: 0.4 ms."""


def xxh3_64(data: bytes) -> int:
    """The hash as an unsigned number."""
    size = len(data)
    if size <= 16:
        return _hash_short(data, size)
    if size <= 128:
        return _hash_medium(data, size)
    if size <= 240:
        return _hash_longer(data, size)
    pieces = _hash_long(data, size)
    while True:
        try:
            next(pieces)
        except StopIteration as e:
            return int(e.value)


def xxh3_64_in_pieces(data: bytes) -> Generator[None, None, int]:
    """The same; yields between pieces."""
    if len(data) <= 240:
        return xxh3_64(data)
    return (yield from _hash_long(data, len(data)))


def _read_64(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 8], "little")


def _read_32(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "little")


def _rotated(value: int, count: int) -> int:
    return (value << count | value >> (64 - count)) & _MASK


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _PRIME_MIX_1 & _MASK
    return value ^ value >> 32


def _avalanche_64(value: int) -> int:
    value ^= value >> 33
    value = value * _PRIME_64_2 & _MASK
    value ^= value >> 29
    value = value * _PRIME_64_3 & _MASK
    return value ^ value >> 32


def _folded(left: int, right: int) -> int:
    product = left * right
    return (product ^ product >> 64) & _MASK


def _mix_16(data: bytes, position: int, secret_position: int) -> int:
    return _folded(
        _read_64(data, position) ^ _read_64(_SECRET, secret_position), _read_64(data, position + 8) ^ _read_64(_SECRET, secret_position + 8)
    )


def _hash_short(data: bytes, size: int) -> int:
    if size > 8:
        low = _read_64(data, 0) ^ _read_64(_SECRET, 24) ^ _read_64(_SECRET, 32)
        high = _read_64(data, size - 8) ^ _read_64(_SECRET, 40) ^ _read_64(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((size + swapped + high + _folded(low, high)) & _MASK)
    if size >= 4:
        value = _read_32(data, size - 4) + (_read_32(data, 0) << 32)
        value ^= _read_64(_SECRET, 8) ^ _read_64(_SECRET, 16)
        value ^= _rotated(value, 49) ^ _rotated(value, 24)
        value = value * _PRIME_MIX_2 & _MASK
        value ^= (value >> 35) + size
        value = value * _PRIME_MIX_2 & _MASK
        return value ^ value >> 28
    if size:
        value = data[0] << 16 | data[size >> 1] << 24 | data[size - 1] | size << 8
        return _avalanche_64(value ^ _read_32(_SECRET, 0) ^ _read_32(_SECRET, 4))
    return _avalanche_64(_read_64(_SECRET, 56) ^ _read_64(_SECRET, 64))


def _hash_medium(data: bytes, size: int) -> int:
    total = size * _PRIME_64_1
    for step in range((size - 1) // 32, -1, -1):
        total += _mix_16(data, 16 * step, 32 * step) + _mix_16(data, size - 16 * (step + 1), 32 * step + 16)
    return _avalanche(total & _MASK)


def _hash_longer(data: bytes, size: int) -> int:
    total = size * _PRIME_64_1
    for step in range(8):
        total += _mix_16(data, 16 * step, 16 * step)
    total = _avalanche(total & _MASK)
    for step in range(8, size // 16):
        total += _mix_16(data, 16 * step, 16 * (step - 8) + 3)
    total += _mix_16(data, size - 16, 136 - 17)
    return _avalanche(total & _MASK)


def _hash_long(data: bytes, size: int) -> Generator[None, None, int]:
    lanes = [_PRIME_32_3, _PRIME_64_1, _PRIME_64_2, _PRIME_64_3, _PRIME_64_4, _PRIME_32_2, _PRIME_64_5, _PRIME_32_1]
    keys = [_LANES.unpack_from(_SECRET, 8 * stripe) for stripe in range(_STRIPES_PER_BLOCK)]
    scramble_keys = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE_SIZE)
    stripe = block = 0
    for position in range(0, size - _STRIPE_SIZE, _STRIPE_SIZE):
        _accumulate(lanes, _LANES.unpack_from(data, position), keys[stripe])
        stripe += 1
        if stripe == _STRIPES_PER_BLOCK and position + _STRIPE_SIZE < size:
            stripe = 0
            block += 1
            if block % BLOCKS_PER_PIECE == 0:
                yield
            lanes = [((lane ^ lane >> 47 ^ key) * _PRIME_32_1) & _MASK for lane, key in zip(lanes, scramble_keys, strict=True)]
    _accumulate(lanes, _LANES.unpack_from(data, size - _STRIPE_SIZE), _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE_SIZE - 7))
    total = size * _PRIME_64_1
    for pair in range(0, 8, 2):
        total += _folded(lanes[pair] ^ _read_64(_SECRET, 11 + 8 * pair), lanes[pair + 1] ^ _read_64(_SECRET, 19 + 8 * pair))
    return _avalanche(total & _MASK)


def _accumulate(lanes: list[int], values: tuple[int, ...], keys: tuple[int, ...]) -> None:
    for index in range(8):
        value = values[index]
        key = value ^ keys[index]
        lanes[index ^ 1] = (lanes[index ^ 1] + value) & _MASK
        lanes[index] = (lanes[index] + (key & _MASK_32) * (key >> 32)) & _MASK
