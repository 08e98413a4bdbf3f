"""The segments of one log in offset order (Kafka's LogSegments), and how many of the closed ones stay open.

Invariants: base offsets ascend; the last segment is the active one. Owner: Log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from storage.segment import LogSegment

OPEN_CLOSED_SEGMENTS = 8  # closed segments of one log that keep descriptors: consumers that catch up read one after the other


class LogSegments:
    """See the module's docstring."""

    __slots__ = ("_base_offsets", "_opened", "_segments")

    def __init__(self, segments: list[LogSegment] | None = None) -> None:
        self._segments: list[LogSegment] = segments or []
        self._base_offsets = [segment.base_offset for segment in self._segments]
        self._opened: list[LogSegment] = []
        assert self._base_offsets == sorted(self._base_offsets)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def active(self) -> LogSegment:
        return self._segments[-1]

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def add(self, segment: LogSegment) -> None:
        assert not self._segments or segment.base_offset > self.active.base_offset
        self._segments.append(segment)
        self._base_offsets.append(segment.base_offset)

    def floor_index(self, offset: int) -> int:
        """Index of the segment that `offset` falls into, the first one for an offset before all."""
        return max(bisect_right(self._base_offsets, offset) - 1, 0)

    def at(self, index: int) -> LogSegment:
        return self._segments[index]

    def from_index(self, index: int) -> list[LogSegment]:
        return self._segments[index:]

    def end_offset_of(self, index: int, log_end_offset: int) -> int:
        """The offset at which the next segment, or the log's future, starts."""
        return self._base_offsets[index + 1] if index + 1 < len(self._segments) else log_end_offset

    def remove_first(self, count: int) -> list[LogSegment]:
        return self._remove(0, count)

    def remove_from(self, index: int) -> list[LogSegment]:
        return self._remove(index, len(self._segments))

    def note_read(self, segment: LogSegment) -> None:
        """A closed segment was opened or read: keep it open, and close the one that was opened longest ago beyond the limit."""
        if segment.is_active or segment in self._opened:
            return
        self._opened.append(segment)
        if len(self._opened) > OPEN_CLOSED_SEGMENTS:
            self._opened.pop(0).unload()

    def _remove(self, start: int, end: int) -> list[LogSegment]:
        removed = self._segments[start:end]
        del self._segments[start:end]
        del self._base_offsets[start:end]
        self._opened = [segment for segment in self._opened if segment not in removed]
        return removed
