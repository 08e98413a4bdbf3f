"""Compacting one log (Kafka's Cleaner): a map of the keys of its dirty part, then every segment below the end is rewritten without the
records that a later one of their key supersedes.

`compact` is a generator that yields the number of bytes read or written since the last step, 0 after mere computing: its caller limits the
rate, serves others, or ends it. It reads closed segments and writes `.cleaned` files, and deletes those that it does not return. It touches
no file to which the broker writes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, suppress

from protocol.checksum import crc32c
from protocol.compression import Buffer
from protocol.errors import DecodeError
from protocol.records import CRC_START, LOG_OVERHEAD
from storage.compaction.batch_filter import BatchFilter, KeptBatch
from storage.compaction.chunks import Chunk, read_chunks
from storage.compaction.dirty_keys import DirtyKeys
from storage.compaction.last_offsets import LastOffsets
from storage.compaction.offset_map import OffsetMap
from storage.compaction.plan import STEP_RECORDS, CleanedSegment, CompactionPlan, CompactionResult, CompactionStats, SourceSegment
from storage.compaction.transactions import TransactionTracker
from storage.errors import StorageError
from storage.files import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    delete_if_exists,
    offset_file_name,
    sync_directory,
)
from storage.segment import MAX_RELATIVE_OFFSET, LogSegment
from storage.transaction_index import AbortedTransaction, TransactionIndex

LAST_OFFSETS_SHARE = 1 / 8  # of the map's limit
WRITE_BYTES = 1024 * 1024  # gathered before they are written

Steps = Generator[int, None, CompactionResult]


def compact(plan: CompactionPlan) -> Steps:
    """Execute the plan. StorageError or OSError when the disk fails or a segment has left the log; DecodeError for a malformed batch."""
    _delete_leftovers(plan)
    aborted = _read_aborted_transactions(plan)
    offsets, last_offsets = OffsetMap(plan.map_limit_bytes), _last_offsets(plan)
    dirty_keys = DirtyKeys(plan, offsets, last_offsets, aborted)
    yield from dirty_keys.collect()
    assert offsets.latest_offset >= plan.first_dirty_offset, "a dirty part has a batch at least"
    transactions = TransactionTracker(aborted)
    batches = BatchFilter(
        offsets, last_offsets, transactions, plan.producers, first_dirty_offset=plan.first_dirty_offset,
        end_offset=plan.end_offset, now_ms=plan.now_ms, delete_retention_ms=plan.config.delete_retention_ms,
    )  # fmt: skip
    sources = [segment for segment in plan.segments if segment.base_offset <= offsets.latest_offset]
    cleaned: list[CleanedSegment] = []
    try:
        for group in group_segments(plan, sources):
            cleaned.append((yield from _clean_group(plan, group, batches, transactions)))
        sync_directory(plan.directory, disk=plan.disk)
    except BaseException:  # also when the generator is closed
        for segment in cleaned:
            with suppress(StorageError):
                _delete_cleaned(plan, segment.base_offset)
        raise
    stats = CompactionStats(
        read_bytes=sum(segment.size_bytes for segment in sources), read_records=batches.read_records,
        written_bytes=sum(segment.size_bytes for segment in cleaned), written_records=batches.written_records,
        map_read_bytes=dirty_keys.read_bytes, map_share=offsets.share,
        keyless_records=batches.keyless_records,
    )  # fmt: skip
    return CompactionResult(tuple(cleaned), offsets.latest_offset + 1, stats)


def group_segments(plan: CompactionPlan, segments: Sequence[SourceSegment]) -> list[list[SourceSegment]]:
    """Returns runs of segments whose files and offsets fit into one segment, so that segments do not become ever smaller."""
    groups: list[list[SourceSegment]] = []
    sizes = [0, 0, 0]
    limits = plan.config.segment_bytes, plan.config.segment_index_bytes, plan.config.segment_index_bytes
    for index, segment in enumerate(segments):
        added = segment.size_bytes, _index_bytes(plan, segment, INDEX_SUFFIX), _index_bytes(plan, segment, TIME_INDEX_SUFFIX)
        last_offset = (segments[index + 1].base_offset if index + 1 < len(segments) else plan.end_offset) - 1
        fits = all(size + more <= limit for size, more, limit in zip(sizes, added, limits, strict=True))
        if groups and fits and (not segment.size_bytes or last_offset - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET):
            groups[-1].append(segment)
            sizes = [size + more for size, more in zip(sizes, added, strict=True)]
        else:
            groups.append([segment])
            sizes = list(added)
    return groups


def _last_offsets(plan: CompactionPlan) -> LastOffsets:
    """Returns an object for the dirty part, or an empty one if it would take too much of the map's memory."""
    size_bytes = LastOffsets.size_bytes(plan.end_offset - plan.first_dirty_offset)
    end_offset = plan.end_offset if size_bytes <= plan.map_limit_bytes * LAST_OFFSETS_SHARE else plan.first_dirty_offset
    return LastOffsets(plan.first_dirty_offset, end_offset)


def _clean_group(
    plan: CompactionPlan, group: list[SourceSegment], batches: BatchFilter, transactions: TransactionTracker
) -> Generator[int, None, CleanedSegment]:
    """Write the remaining records of these segments into one segment."""
    base_offset = group[0].base_offset
    segment = LogSegment.create(plan.directory, base_offset, plan.config, plan.now_ms, plan.disk, CLEANED_SUFFIX)
    transactions.keep_aborted = segment.indexes.transaction_index.append
    try:
        for source in group:
            with closing(read_chunks(plan.directory, source, plan.read_bytes, plan.disk)) as chunks:
                for chunk in chunks:
                    yield chunk.end
                    yield from _clean_chunk(chunk, segment, batches)
        segment.become_inactive()
        segment.flush()
        modified_s = plan.disk.stat(plan.directory / offset_file_name(group[-1].base_offset, LOG_SUFFIX)).st_mtime
        plan.disk.utime(segment.log_path, (modified_s, modified_s))  # retention uses it for records without timestamps
        segment.unload()
    except BaseException:
        segment.delete()
        raise
    return CleanedSegment(base_offset, segment.size_bytes, tuple(source.base_offset for source in group))


def _clean_chunk(chunk: Chunk, segment: LogSegment, batches: BatchFilter) -> Generator[int, None, None]:
    data, view = chunk.data, memoryview(chunk.data)
    gathered = _GatheredBatches(view)
    records_count = 0
    for position, header in chunk.batches:
        end = position + LOG_OVERHEAD + header.batch_length
        if crc32c(view[position + CRC_START : end]) != header.crc:
            # Kafka does not check it. But a rewritten batch gets a new checksum, which would hide its damage.
            raise DecodeError(f"the batch at offset {header.base_offset} does not match its checksum")
        kept = batches.keep(data, position, header)
        if kept is not None:
            gathered.add(kept, position, end)
            if gathered.size_bytes >= WRITE_BYTES:
                yield gathered.write_to(segment)
        records_count += header.records_count
        if records_count >= STEP_RECORDS:
            records_count = 0
            yield 0
    yield gathered.write_to(segment)


class _GatheredBatches:
    """Batches of one chunk that are written with one call; adjacent ones that stay as they are are one piece of the chunk."""

    def __init__(self, chunk: memoryview) -> None:
        self._chunk = chunk
        self._begin()

    def _begin(self) -> None:
        self._pieces: list[Buffer] = []
        self._run = (-1, -1)  # the last piece's place in the chunk
        self._notes: list[tuple[int, int, int]] = []
        self.size_bytes = 0

    def add(self, kept: KeptBatch, position: int, end: int) -> None:
        """Add what is left of the batch in these bytes of the chunk."""
        data, last_offset, max_timestamp = kept
        size = end - position
        if data is not None:
            size = len(data)
            self._pieces.append(data)
        elif self._pieces and self._run[1] == position:
            self._run = self._run[0], end
            self._pieces[-1] = self._chunk[self._run[0] : end]
        else:
            self._run = position, end
            self._pieces.append(self._chunk[position:end])
        self._notes.append((size, last_offset, max_timestamp))
        self.size_bytes += size

    def write_to(self, segment: LogSegment) -> int:
        """Write all and forget it. Returns the number of bytes."""
        size_bytes, notes = self.size_bytes, self._notes
        if size_bytes:
            position = segment.write(self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces))
            for size, last_offset, max_timestamp in notes:
                segment.note_batch(position, size, last_offset, max_timestamp)
                position += size
            self._begin()
        return size_bytes


def _read_aborted_transactions(plan: CompactionPlan) -> list[AbortedTransaction]:
    """Returns the aborted transactions that began below the end, each once."""
    aborted: list[AbortedTransaction] = []
    for base_offset in (*(segment.base_offset for segment in plan.segments), *plan.later_segments):
        path = plan.directory / offset_file_name(base_offset, TRANSACTION_INDEX_SUFFIX)
        aborted += TransactionIndex(path, base_offset, plan.disk).entries()
    return [each for each in aborted if each.first_offset < plan.end_offset]


def _index_bytes(plan: CompactionPlan, segment: SourceSegment, suffix: str) -> int:
    with suppress(FileNotFoundError):
        return plan.disk.stat(plan.directory / offset_file_name(segment.base_offset, suffix)).st_size
    return 0


def _delete_leftovers(plan: CompactionPlan) -> None:
    """Delete the files of a killed compaction. A start takes every `.swap` file above a `.cleaned` file for unfinished."""
    for name, _ in plan.disk.scan(plan.directory):
        if name.endswith(CLEANED_SUFFIX):
            delete_if_exists(plan.directory / name, plan.disk)


def _delete_cleaned(plan: CompactionPlan, base_offset: int) -> None:
    for suffix in SEGMENT_SUFFIXES:
        delete_if_exists(plan.directory / offset_file_name(base_offset, suffix + CLEANED_SUFFIX), plan.disk)
