"""Varints of many records at once, as NumPy arrays (zigzag, seven bits a byte, the least significant first)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...protocol.errors import DecodeError

Positions = NDArray[np.int64]
Bytes = NDArray[np.uint8]

VARINT_BYTES_MAX, VARLONG_BYTES_MAX = 5, 10
PADDING = VARLONG_BYTES_MAX + 1
"""Zero bytes that must follow the data that `read_varints` reads: a varint that begins at its end is one of them."""


def read_varints(data: Bytes, positions: Positions, bytes_max: int = VARINT_BYTES_MAX) -> tuple[Positions, Positions]:
    """Returns the values of the varints at `positions`, and where each ends. DecodeError if one has more than `bytes_max` bytes.

    Positions beyond the data are read as its end: the caller checks the ends."""
    positions = np.minimum(positions, len(data) - PADDING)
    first = data[positions]
    raw = (first & 0x7F).astype(np.uint64)
    ends = positions + 1
    longer = np.flatnonzero(first & 0x80)
    shift = 7
    while len(longer):
        if shift >= 7 * bytes_max:
            raise DecodeError(f"a varint has more than {bytes_max} bytes")
        read = data[np.minimum(ends[longer], len(data) - 1)]
        raw[longer] |= (read & 0x7F).astype(np.uint64) << np.uint64(shift)
        ends[longer] += 1
        longer = longer[(read & 0x80) != 0]
        shift += 7
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), ends


def varint_sizes(values: Positions) -> Positions:
    """Returns the number of bytes of each value as a varint."""
    raw = _zigzag(values)
    sizes = np.ones(len(values), np.int64)
    left = raw >> np.uint64(7)
    while left.any():
        sizes += left != 0
        left >>= np.uint64(7)
    return sizes


def write_varints(out: Bytes, positions: Positions, values: Positions) -> Positions:
    """Write each value as a varint at its position of `out`. Returns where each ends."""
    left = _zigzag(values)
    ends = positions.copy()
    active = np.arange(len(values))
    while len(active):
        byte = (left & np.uint64(0x7F)).astype(np.uint8)
        left = left >> np.uint64(7)
        goes_on = left != 0
        out[ends[active]] = byte | (goes_on.astype(np.uint8) << 7)
        ends[active] += 1
        active, left = active[goes_on], left[goes_on]
    return ends


def _zigzag(values: Positions) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).astype(np.uint64)
