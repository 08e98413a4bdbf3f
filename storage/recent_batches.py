"""The positions of a segment's last batches, in memory, so that reads near the end need no scan of the file.

Invariants: `last_offsets` and `positions` are of the same length and ascend; they have every batch of the segment that ends above `floor`.
Owner: LogSegment, which reads the attributes itself where a produce or a fetch does.
"""

from __future__ import annotations

from bisect import bisect_left

RECENT_BATCHES = 256  # positions that are kept, twice this at most
POSITIONS_MAX = 2 * RECENT_BATCHES


class RecentBatches:
    """See the module's docstring. `floor` is the last offset before the known batches."""

    __slots__ = ("floor", "last_offsets", "positions")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.last_offsets: list[int] = []
        self.positions: list[int] = []

    def add(self, position: int, last_offset: int) -> None:
        """Add the next batch."""
        self.positions.append(position)
        self.last_offsets.append(last_offset)
        if len(self.positions) >= POSITIONS_MAX:
            self.forget_older()

    def forget_older(self) -> None:
        """Keep only the last RECENT_BATCHES of twice as many."""
        self.floor = self.last_offsets[RECENT_BATCHES - 1]
        del self.positions[:RECENT_BATCHES]
        del self.last_offsets[:RECENT_BATCHES]

    def forget(self) -> None:
        """Drop all: reads of these batches use the index, as those of older ones do."""
        if self.last_offsets:
            self.floor = self.last_offsets[-1]
            self.positions.clear()
            self.last_offsets.clear()

    def restart(self, floor: int) -> None:
        """Drop all batches; those added next follow `floor`."""
        self.positions.clear()
        self.last_offsets.clear()
        self.floor = floor

    def cut(self, position: int) -> None:
        """Drop the batches from `position` on, where the segment was truncated."""
        keep = bisect_left(self.positions, position)
        del self.positions[keep:]
        del self.last_offsets[keep:]
