"""The first pass of a compaction: the keys of the dirty part go into the map (Cleaner.buildOffsetMap)."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from itertools import pairwise
from typing import cast

from protocol.record_spans import list_keys
from protocol.records import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader, read_control_type
from storage.compaction.chunks import Chunk, locate_payload, read_chunks
from storage.compaction.last_offsets import LastOffsets
from storage.compaction.offset_map import NOT_FOUND, OffsetMap
from storage.compaction.plan import STEP_RECORDS, CompactionPlan, SourceSegment
from storage.compaction.transactions import TransactionTracker
from storage.transaction_index import AbortedTransaction


class DirtyKeys:
    """Fills `offsets` and `last_offsets`. Owner: one compaction. OSError when the disk fails, DecodeError for a malformed batch."""

    def __init__(self, plan: CompactionPlan, offsets: OffsetMap, last_offsets: LastOffsets, aborted: Iterable[AbortedTransaction]) -> None:
        self._plan = plan
        self._start = plan.first_dirty_offset
        self._offsets = offsets
        self._last_offsets = last_offsets
        self._transactions = TransactionTracker(each for each in aborted if each.last_offset >= self._start)
        self.read_bytes = 0

    def collect(self) -> Generator[int, None, None]:
        """Read the dirty part until the map is full. Yields the number of bytes read since the last step."""
        yield from self._fill_map()
        if self._last_offsets.is_kept:
            for noted in self._offsets.latest_offsets():
                self._last_offsets.note(noted)
                yield 0

    def _fill_map(self) -> Generator[int, None, None]:
        plan = self._plan
        for segment, end_offset in self._dirty_segments():
            with closing(read_chunks(plan.directory, segment, plan.read_bytes, plan.disk)) as chunks:
                for chunk in chunks:
                    self.read_bytes += chunk.end
                    yield chunk.end
                    if not (yield from self._put_chunk(chunk)):
                        return
            self._offsets.latest_offset = end_offset - 1  # the segment may lack batches at its end

    def _dirty_segments(self) -> list[tuple[SourceSegment, int]]:
        """Those with dirty records, and the offset at which the next one begins."""
        segments = self._plan.segments
        ends = [*(segment.base_offset for segment in segments[1:]), self._plan.end_offset]
        return [(segment, end) for segment, end in zip(segments, ends, strict=True) if end > self._start or segment is segments[-1]]

    def _put_chunk(self, chunk: Chunk) -> Generator[int, None, bool]:
        """Returns False when the map is full."""
        offsets, transactions = self._offsets, self._transactions
        records_count = 0
        for position, header in chunk.batches:
            last_offset = header.base_offset + header.last_offset_delta
            if last_offset < self._start:
                continue
            if header.attributes & CONTROL_FLAG:
                transactions.drops_control_batch(header, read_control_type(chunk.data, position, header))
            elif not (header.attributes & TRANSACTIONAL_FLAG and transactions.drops_batch(header)):
                if not offsets.has_room(header.records_count):
                    new_count = self._count_new_keys(chunk.data, position, header)
                    if not offsets.has_room(new_count) and not (yield from offsets.grow(new_count)):
                        return False
                self._put_batch(chunk.data, position, header)
                records_count += header.records_count
            offsets.latest_offset = last_offset
            if records_count >= STEP_RECORDS:
                records_count = 0
                yield 0
        return True

    def _put_batch(self, data: bytes, position: int, header: BatchHeader) -> None:
        payload, start, end = locate_payload(data, position, header)
        keys, deltas, has_tombstone = list_keys(payload, header.records_count, start, end)
        base_offset = header.base_offset
        if base_offset < self._start or deltas is not None or None in keys or len(keys) > header.last_offset_delta + 1:
            self._put_unusual(keys, deltas, header)
        else:
            self._offsets.put_all(cast("list[bytes]", keys), range(base_offset, base_offset + len(keys)))
        if has_tombstone and base_offset >= self._start:
            self._last_offsets.note_tombstone(base_offset)

    def _put_unusual(self, keys: list[bytes | None], deltas: list[int] | None, header: BatchHeader) -> None:
        """Put the keys of a batch that has records without keys, or with other offsets than their places, or that is partly clean."""
        places, base_offset = deltas or range(len(keys)), header.base_offset
        keyed = [
            (key, base_offset + delta)
            for delta, key in zip(places, keys, strict=True)
            if key is not None and base_offset + delta >= self._start
        ]
        self._offsets.put_all([key for key, _ in keyed], [offset for _, offset in keyed])
        if base_offset < self._start:
            return
        ascends = all(before < after for before, after in pairwise([-1, *places, header.last_offset_delta + 1]))
        if not ascends or len(keyed) < len(keys):
            self._last_offsets.give_up()

    def _count_new_keys(self, data: bytes, position: int, header: BatchHeader) -> int:
        """Returns how many keys of the batch are not in the map yet. Called only if the map may have no room for them."""
        payload, start, end = locate_payload(data, position, header)
        keys, deltas, _ = list_keys(payload, header.records_count, start, end)
        first_delta = self._start - header.base_offset
        found = {key for delta, key in zip(deltas or range(len(keys)), keys, strict=True) if key is not None and delta >= first_delta}
        return sum(self._offsets.find(key) == NOT_FOUND for key in found)
