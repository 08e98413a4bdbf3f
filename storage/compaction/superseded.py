"""Which records of the dirty part have a later one of their key, a bit for each offset: what filling the map finds out on the way.

The second pass then needs neither the map nor, where a whole batch is superseded, its records.
"""

from __future__ import annotations

from collections.abc import Iterable

_FLAGS = tuple(bytes(byte >> place & 1 for place in range(8)) for byte in range(256))  # of the eight offsets of a byte


class SupersededOffsets:
    """Offsets in [first_offset, end_offset). `bits` is for loops over records: that of an offset is `offset - first_offset` from its
    start, the lowest of each byte first. Without a range nothing is known."""

    __slots__ = ("bits", "first_offset", "is_kept")

    def __init__(self, first_offset: int, end_offset: int) -> None:
        self.first_offset = first_offset
        self.is_kept = end_offset > first_offset
        self.bits = bytearray((end_offset - first_offset >> 3) + 1)

    def give_up(self) -> None:
        """Know of nothing: there is a batch whose records do not lie in the order of their offsets."""
        self.is_kept = False

    def note(self, offsets: Iterable[int]) -> None:
        """These are superseded; one below the range, as NOT_FOUND is, counts for nothing."""
        if not self.is_kept:
            return
        bits, start = self.bits, self.first_offset
        for offset in offsets:
            if offset >= start:
                place = offset - start
                bits[place >> 3] |= 1 << (place & 7)

    def flags(self, start_offset: int, end_offset: int) -> bytes | None:
        """1 for each offset in [start_offset, end_offset) that is superseded, 0 for each that is not; None where nothing is known."""
        if start_offset < self.first_offset or not self.is_kept:
            return None
        start, end = start_offset - self.first_offset, end_offset - self.first_offset
        known = b"".join([_FLAGS[byte] for byte in self.bits[start >> 3 : (end >> 3) + 1]])
        return known[start & 7 : (start & 7) + end - start]
