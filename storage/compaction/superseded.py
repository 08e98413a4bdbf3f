"""Which records of the dirty part have a later one of their key, a bit for each offset: what filling the map finds out on the way.

The second pass then needs neither the map nor, where a whole batch is superseded, its records.
"""

from __future__ import annotations


class SupersededOffsets:
    """Offsets in [first_offset, end_offset). `bits` is for loops over records: that of an offset is `offset - first_offset` from its
    start, the lowest of each byte first. Without a range nothing is noted."""

    __slots__ = ("bits", "first_offset", "is_kept")

    def __init__(self, first_offset: int, end_offset: int) -> None:
        self.first_offset = first_offset
        self.is_kept = end_offset > first_offset
        self.bits = bytearray((end_offset - first_offset >> 3) + 1)

    def has_all(self, start_offset: int, end_offset: int) -> bool:
        """Whether every offset in [start_offset, end_offset) is superseded."""
        if start_offset < self.first_offset or not self.is_kept:
            return False
        start, count = start_offset - self.first_offset, end_offset - start_offset
        found = int.from_bytes(self.bits[start >> 3 : (start + count >> 3) + 1], "little") >> (start & 7)
        return ~found & (1 << count) - 1 == 0
