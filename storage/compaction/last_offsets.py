"""Which records of the dirty part are the last of their key, as a bit for each offset. Filling the map of keys finds them.

With it the second pass neither needs the map for these batches nor, in most of them, reads a key: batches of which nothing or everything
stays need no look at their records.
"""

from __future__ import annotations

from collections.abc import Iterable

_FLAGS = tuple(bytes(byte >> place & 1 for place in range(8)) for byte in range(256))  # of the eight offsets of a byte


class LastOffsets:
    """Offsets in [first_offset, end_offset); with an empty range nothing is known. Everything else in the range that has a key is
    superseded."""

    __slots__ = ("_last", "_tombstones", "first_offset", "is_kept")

    @staticmethod
    def size_bytes(offsets_count: int) -> int:
        """The memory of a range of so many offsets."""
        return 2 * (offsets_count // 8 + 1)

    def __init__(self, first_offset: int, end_offset: int) -> None:
        self.first_offset = first_offset
        self.is_kept = end_offset > first_offset
        self._last = bytearray((end_offset - first_offset >> 3) + 1)
        self._tombstones = bytearray(len(self._last) if self.is_kept else 0)

    def give_up(self) -> None:
        """Drop everything, because a batch has a record without a key, or records that are not in the order of their offsets."""
        self.is_kept = False

    def note(self, offsets: Iterable[int]) -> None:
        """Mark these, of the range, as the last of their keys."""
        last, start = self._last, self.first_offset
        for offset in offsets:
            place = offset - start
            last[place >> 3] |= 1 << (place & 7)

    def note_tombstone(self, base_offset: int) -> None:
        """Mark the batch with this base offset as one with a tombstone."""
        if self.is_kept:
            place = base_offset - self.first_offset
            self._tombstones[place >> 3] |= 1 << (place & 7)

    def has_tombstone(self, base_offset: int) -> bool:
        place = base_offset - self.first_offset
        return self._tombstones[place >> 3] >> (place & 7) & 1 == 1

    def flags(self, start_offset: int, end_offset: int) -> bytes:
        """1 for each offset in [start_offset, end_offset), which the range has, that is the last of its key, else 0."""
        start, end = start_offset - self.first_offset, end_offset - self.first_offset
        some = self._last[start >> 3 : (end >> 3) + 1]
        if not any(some):
            return bytes(end - start)
        known = b"".join([_FLAGS[byte] for byte in some])
        return known[start & 7 : (start & 7) + end - start]
