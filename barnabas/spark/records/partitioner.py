"""To which partition a row goes, as Kafka's default partitioner has it: by the murmur2 hash of the key.

Source: org.apache.kafka.common.utils.Utils.murmur2, BuiltInPartitioner.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .arrays import nulls_of
from .varints import Positions

SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
_SHIFTS = (np.uint32(0), np.uint32(8), np.uint32(16), np.uint32(24))


def partitions_of(key: pa.Array, partitions_count: int, *, of_null: int) -> Positions:
    """The partition of each key, a column of binary; `of_null` for a null one."""
    hashes = murmur2(key)
    found = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions_count
    if key.null_count:
        found[nulls_of(key)] = of_null
    return found


def murmur2(strings: pa.Array) -> NDArray[np.uint32]:
    """The hash of each byte string; that of a null one means nothing. Words are hashed for all strings at once, one after the other."""
    count = len(strings)
    _, offsets, data = strings.buffers()
    edges = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + count + 1].astype(np.int64)
    seen = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    starts, sizes = edges[:-1], np.diff(edges)
    hashes = (np.uint32(SEED) ^ sizes.astype(np.uint32)).astype(np.uint32)
    active = np.flatnonzero(sizes >= 4)
    place = 0
    while len(active):
        at = starts[active] + place
        word = np.zeros(len(active), np.uint32)
        for byte, shift in enumerate(_SHIFTS):
            word |= seen[at + byte].astype(np.uint32) << shift
        word *= _M
        word ^= word >> np.uint32(24)
        word *= _M
        hashes[active] = (hashes[active] * _M) ^ word
        place += 4
        active = active[sizes[active] >= place + 4]
    rest = sizes & 3
    for byte in (2, 1, 0):
        has = np.flatnonzero(rest > byte)
        hashes[has] ^= seen[starts[has] + (sizes[has] & ~3) + byte].astype(np.uint32) << _SHIFTS[byte]
    has = np.flatnonzero(rest)
    hashes[has] *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes
