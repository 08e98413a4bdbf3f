"""Java's String.hashCode, which decides which partition of an internal topic keeps what an id names. Pure.

Any client may send ids of 32 KB, thousands in one request, so a long one is hashed many characters at a time: Python's big integers
serve as vectors, and each step joins the hashes of neighbouring pieces of the text, hash(a + b) = hash(a) · 31^len(b) + hash(b).
"""

from __future__ import annotations

from functools import lru_cache
from operator import mul

CACHED_LENGTH_MAX = 100
"""Characters of an id whose hash is remembered. Real ids are shorter; strangers' long ones must not fill the memory."""

HASHES_CACHED = 10_000
"""At most 5 MB with the ids."""

_MASK_32 = 0xFFFFFFFF
_BLOCK_UNITS = 1024  # UTF-16 units that are hashed together
_WORD_UNITS = 8  # units that the vector steps join into one word of the block


def positive_java_hash(text: str) -> int:
    """`text.hashCode()` over UTF-16 units, made positive as Kafka's Utils.abs does: negated, and the smallest int is 0.

    Takes 15 to 50 ns a character, half a millisecond for the longest string that a request can have."""
    value = _short_hash(text) if len(text) <= CACHED_LENGTH_MAX else _long_hash(text)
    return value if value < 0x80000000 else (0x100000000 - value) % 0x80000000


@lru_cache(maxsize=HASHES_CACHED)
def _short_hash(text: str) -> int:
    value = 0
    encoded = text.encode("utf-16-le", "surrogatepass")
    for unit in memoryview(encoded).cast("H"):
        value = (31 * value + unit) & _MASK_32
    return value


def _long_hash(text: str) -> int:
    encoded = text.encode("utf-16-le", "surrogatepass")
    block_bytes = 2 * _BLOCK_UNITS
    # Units of 0 in front do not change a hash: they make the text whole blocks.
    padded = bytes(-len(encoded) % block_bytes) + encoded
    value = 0
    for start in range(0, len(padded), block_bytes):
        value = (value * _BLOCK_FACTOR + _block_hash(padded[start : start + block_bytes])) & _MASK_32
    return value


def _block_hash(block: bytes) -> int:
    """The hash of one block, modulo nothing yet. The first unit is in the lowest bits."""
    vector = int.from_bytes(block, "little")
    vector = (vector & _FIRST_OF_2) * 31 + (vector >> 16 & _FIRST_OF_2)  # in each 32 bits the hash of 2 units, below 2^21
    vector = (vector & _FIRST_OF_4) * 31**2 + (vector >> 32 & _FIRST_OF_4)  # in each 64 bits that of 4, below 2^32
    vector = (vector & _FIRST_OF_8) * 31**4 + (vector >> 64 & _FIRST_OF_8)  # in each 128 bits that of 8, below 2^53
    words = memoryview(vector.to_bytes(len(block), "little")).cast("Q")[::2].tolist()
    return sum(map(mul, words, _WORD_FACTORS))


def _lanes(lane_bits: int, used_bits: int) -> int:
    """A mask over a block: the low `used_bits` of every `lane_bits`."""
    lane = ((1 << used_bits) - 1).to_bytes(lane_bits // 8, "little")
    return int.from_bytes(lane * (16 * _BLOCK_UNITS // lane_bits), "little")


_FIRST_OF_2 = _lanes(32, 16)
_FIRST_OF_4 = _lanes(64, 32)
_FIRST_OF_8 = _lanes(128, 64)
_BLOCK_FACTOR = pow(31, _BLOCK_UNITS, 1 << 32)
_WORD_FACTORS = [pow(31, units, 1 << 32) for units in range(_BLOCK_UNITS - _WORD_UNITS, -1, -_WORD_UNITS)]
