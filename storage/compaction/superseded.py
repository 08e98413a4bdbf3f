"""The records of the dirty part that a later one of their key supersedes, as a bit for each offset. Filling the map finds them.

With it the second pass does not need the map for these records, nor read the records of a batch that is superseded as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable

_FLAGS = tuple(bytes(byte >> place & 1 for place in range(8)) for byte in range(256))  # of the eight offsets of a byte


class SupersededOffsets:
    """Offsets in [first_offset, end_offset). `bits` is for loops over records: the bit of an offset is number `offset - first_offset`,
    with the lowest bit of each byte first. With an empty range nothing is known."""

    __slots__ = ("bits", "first_offset", "is_kept")

    def __init__(self, first_offset: int, end_offset: int) -> None:
        self.first_offset = first_offset
        self.is_kept = end_offset > first_offset
        self.bits = bytearray((end_offset - first_offset >> 3) + 1)

    def give_up(self) -> None:
        """Drop everything, because a batch has records that are not in the order of their offsets."""
        self.is_kept = False

    def note(self, offsets: Iterable[int]) -> None:
        """Mark these as superseded; offsets below the range, like NOT_FOUND, are ignored."""
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
