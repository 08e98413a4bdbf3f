"""The segments of one log in offset order (Kafka's LogSegments), and the limit on open closed segments.

Invariants: base offsets ascend; the last segment is the active one. Owner: Log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from storage.batch_scan import read_batch_header
from storage.file_slice import FileSlice
from storage.segment import LogSegment
from storage.transaction_index import STEP_ENTRIES, AbortedTransaction

OPEN_CLOSED_SEGMENTS = 8  # for a single log; the log manager's logs share one OpenSegments


class OpenSegments:
    """Closed segments that keep their descriptors (three each, and one for aborted transactions), so that consumers that catch up need not
    open them again.

    All logs of a broker share it: with ten thousand logs, a limit for each would be no limit."""

    __slots__ = ("_limit", "_segments")

    def __init__(self, limit: int = OPEN_CLOSED_SEGMENTS) -> None:
        self._limit = limit
        self._segments: dict[LogSegment, None] = {}  # a dict for its order: opened longest ago first

    def add(self, segment: LogSegment) -> None:
        """Keep it open, and close the one that was opened longest ago beyond the limit."""
        if segment in self._segments:
            return
        self._segments[segment] = None
        if len(self._segments) > self._limit:
            oldest = next(iter(self._segments))
            del self._segments[oldest]
            if not oldest.is_active:
                oldest.unload()

    def discard(self, segment: LogSegment) -> None:
        self._segments.pop(segment, None)


class LogSegments:
    """See the module's docstring."""

    __slots__ = ("_aborting", "_base_offsets", "_opened", "_segments", "active")

    def __init__(self, segments: list[LogSegment] | None = None, opened: OpenSegments | None = None) -> None:
        self._segments: list[LogSegment] = segments or []
        self._base_offsets = [segment.base_offset for segment in self._segments]
        self._opened = OpenSegments() if opened is None else opened
        self._aborting: list[LogSegment] | None = None
        assert self._base_offsets == sorted(self._base_offsets)
        self._note_active()

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

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
        if self._aborting is not None and segment.indexes.transaction_index.count:
            self._aborting.append(segment)
        self._note_active()

    def floor_index(self, offset: int) -> int:
        """Returns the index of the segment of `offset`; the first one for an offset before all."""
        return max(bisect_right(self._base_offsets, offset) - 1, 0)

    def at(self, index: int) -> LogSegment:
        return self._segments[index]

    def from_index(self, index: int) -> list[LogSegment]:
        return self._segments[index:]

    def end_offset_of(self, index: int, log_end_offset: int) -> int:
        """Returns the start of the next segment, or the log's end for the last one."""
        return self._base_offsets[index + 1] if index + 1 < len(self._segments) else log_end_offset

    def start_of_batch(self, offset: int) -> int:
        """Returns the first offset of the batch that contains `offset`; `offset` itself if there is none. OSError."""
        segment = self._segments[self.floor_index(offset)]
        self.note_read(segment)
        position = segment.find_position(offset)
        return offset if position >= segment.size_bytes else min(offset, read_batch_header(segment.file, position).base_offset)

    def has_nothing_from(self, offset: int) -> bool:
        """Whether no batch ends above `offset`, because later ones are lost or compacted away. OSError or StorageError."""
        last = next((segment for segment in reversed(self._segments) if segment.size_bytes), None)
        return last is None or last.read_end_offset() <= offset

    def slice(self, start_offset: int, max_bytes: int, end_offset: int, log_end_offset: int, minimum_one_batch: bool) -> FileSlice | None:
        """Returns whole batches of one segment, from the one that contains `start_offset`, all below `end_offset`; None when nothing
        fits."""
        active = self._segments[-1]
        if start_offset >= active.base_offset:
            end_position = active.size_bytes if end_offset >= log_end_offset else active.find_position(end_offset)
            return active.slice(active.find_position(start_offset), end_position, max_bytes, minimum_one_batch)
        for index in range(self.floor_index(start_offset), len(self._segments)):
            segment = self._segments[index]
            self.note_read(segment)
            is_whole = end_offset >= self.end_offset_of(index, log_end_offset)
            end_position = segment.size_bytes if is_whole else segment.find_position(end_offset)
            position = segment.find_position(start_offset)
            if position < segment.size_bytes:  # else compaction removed the rest of this segment
                return segment.slice(position, end_position, max_bytes, minimum_one_batch)
        return None

    @property
    def have_aborted(self) -> bool:
        """Whether a segment has the marker of an aborted transaction. StorageError."""
        return bool(self._find_aborting())

    def find_aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions with records in [start_offset, end_offset), in the order of their markers. Only segments with
        such a marker are asked, until one says that all later transactions began behind the end. ColdRead; StorageError."""
        aborting = self._find_aborting()
        base_offset = self._base_offsets[self.floor_index(start_offset)]
        aborted: list[AbortedTransaction] = []
        step_entries = STEP_ENTRIES
        for index in range(bisect_left(aborting, base_offset, key=lambda segment: segment.base_offset), len(aborting)):
            segment = aborting[index]
            transactions = segment.indexes.transaction_index
            new_entries = transactions.unsummarized_count
            search = transactions.collect(start_offset, end_offset, step_entries)
            step_entries -= new_entries
            if transactions.is_open:
                self.note_read(segment)
            aborted += search.aborted
            if search.is_complete:
                break
        return aborted

    def _find_aborting(self) -> list[LogSegment]:
        """Returns the segments with a transaction index that is not empty."""
        if self._aborting is None:
            self._aborting = [segment for segment in self._segments if segment.indexes.transaction_index.count]
        return self._aborting

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Add a transaction whose marker is in the active segment to its index. StorageError when the disk fails."""
        active = self.active
        active.indexes.transaction_index.append(aborted)
        if self._aborting is not None and (not self._aborting or self._aborting[-1] is not active):
            self._aborting.append(active)

    def index_of_read(self, start_offset: int, records: FileSlice) -> int:
        """Returns the index of the segment of which `slice` has just returned `records` for `start_offset`."""
        return next(index for index in range(self.floor_index(start_offset), len(self._segments)) if self._segments[index].owns(records))

    def end_offset_of_read(self, start_offset: int, records: FileSlice, log_end_offset: int) -> int:
        """Returns an offset behind the last batch of such a read, at or before the batch that follows it. ColdRead; StorageError."""
        index = self.index_of_read(start_offset, records)
        segment, end_position = self._segments[index], records.position + records.size
        return segment.find_offset_at(end_position) if end_position < segment.size_bytes else self.end_offset_of(index, log_end_offset)

    def remove_first(self, count: int) -> list[LogSegment]:
        return self._remove(0, count)

    def remove_from(self, index: int) -> list[LogSegment]:
        return self._remove(index, len(self._segments))

    def find_run(self, segments: list[LogSegment]) -> int | None:
        """Returns the index at which `segments` are in the log in this order; None if they are not."""
        index = self.floor_index(segments[0].base_offset)
        return index if self._segments[index : index + len(segments)] == segments else None

    def replace(self, index: int, count: int, segments: list[LogSegment]) -> None:
        """Put `segments` in the place of the `count` closed ones from `index` on."""
        for segment in self._segments[index : index + count]:
            self._opened.discard(segment)
        self._aborting = None
        self._segments[index : index + count] = segments
        self._base_offsets[index : index + count] = [segment.base_offset for segment in segments]
        assert self._base_offsets == sorted(set(self._base_offsets))

    def note_read(self, segment: LogSegment) -> None:
        """Record that a closed segment was opened or read: it stays open as one of a limited number."""
        if not segment.is_active:
            self._opened.add(segment)

    def abandon(self) -> None:
        """Free every descriptor without writing."""
        for segment in self._segments:
            segment.abandon()
            self._opened.discard(segment)

    def _remove(self, start: int, end: int) -> list[LogSegment]:
        self._aborting = None
        removed = self._segments[start:end]
        del self._segments[start:end]
        del self._base_offsets[start:end]
        self._note_active()
        for segment in removed:
            self._opened.discard(segment)
        return removed

    def _note_active(self) -> None:
        if self._segments:
            self.active: LogSegment = self._segments[-1]
