"""Compacting one log (Kafka's Cleaner): a map of the keys of its dirty part, then every segment below the end is rewritten without the
records that a later one of their key supersedes.

`compact` is a generator that yields the number of bytes read or written since the last step, 0 after mere computing: its caller limits the
rate, serves others, or ends it. It reads closed segments and writes `.cleaned` files, and deletes those that it does not return. It touches
no file to which the broker writes.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from struct import Struct
from typing import cast

from protocol.checksum import crc32c
from protocol.errors import DecodeError
from protocol.record_spans import list_keys
from protocol.records import CRC_START, HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_control_type, read_header, read_payload
from storage.compaction.batch_filter import BatchFilter, check_magic
from storage.compaction.offset_map import NOT_FOUND, OffsetMap
from storage.compaction.plan import CleanedSegment, CompactionPlan, CompactionResult, CompactionStats, SourceSegment
from storage.compaction.superseded import SupersededOffsets
from storage.compaction.transactions import TransactionTracker
from storage.disk import Disk
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

SUPERSEDED_SHARE = 1 / 8  # of the map's limit
WRITE_BYTES = 1024 * 1024  # gathered before they are written

_BATCH_LENGTH = Struct(">8xi")  # the only field that is needed to find where a chunk's batches lie

Steps = Generator[int, None, CompactionResult]


def compact(plan: CompactionPlan) -> Steps:
    """Execute the plan. StorageError or OSError when the disk fails or a segment has left the log; DecodeError for a malformed batch."""
    _delete_leftovers(plan)
    aborted = _read_aborted_transactions(plan)
    offsets = OffsetMap(plan.map_limit_bytes)
    superseded = _superseded_offsets(plan)
    map_read_bytes = yield from _fill_map(plan, offsets, superseded, aborted)
    assert offsets.latest_offset >= plan.first_dirty_offset, "a dirty part has a batch at least"
    transactions = TransactionTracker(aborted)
    batches = BatchFilter(
        offsets, superseded, transactions, plan.producers,
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
        map_read_bytes=map_read_bytes, map_share=offsets.share,
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


def _superseded_offsets(plan: CompactionPlan) -> SupersededOffsets:
    """Returns an object for the dirty part, or an empty one if it would take too much of the map's memory."""
    size_bytes = (plan.end_offset - plan.first_dirty_offset) // 8
    end_offset = plan.end_offset if size_bytes <= plan.map_limit_bytes * SUPERSEDED_SHARE else plan.first_dirty_offset
    return SupersededOffsets(plan.first_dirty_offset, end_offset)


def _fill_map(
    plan: CompactionPlan, offsets: OffsetMap, superseded: SupersededOffsets, aborted: list[AbortedTransaction]
) -> Generator[int, None, int]:
    """Put the dirty part's keys into the map until it is full. Returns the number of bytes read."""
    start = plan.first_dirty_offset
    transactions = TransactionTracker(each for each in aborted if each.last_offset >= start)
    read_bytes = 0
    dirty = [
        (segment, after.base_offset if after is not None else plan.end_offset)
        for segment, after in zip(plan.segments, [*plan.segments[1:], None], strict=True)
        if after is None or after.base_offset > start
    ]
    for segment, end_offset in dirty:
        with closing(_read_chunks(plan, segment)) as chunks:
            for chunk in chunks:
                read_bytes += len(chunk)
                yield len(chunk)
                for batch, header in _batches(chunk):
                    if header.last_offset < start:
                        continue
                    if header.is_control:
                        transactions.drops_control_batch(header, read_control_type(batch, 0, header))
                    elif not transactions.drops_batch(header):
                        if not offsets.has_room(header.records_count):
                            new_count = _count_new_keys(offsets, batch, header, start)
                            if not offsets.has_room(new_count) and not (yield from offsets.grow(new_count)):
                                return read_bytes
                        _put_keys(offsets, superseded, batch, header)
                    offsets.latest_offset = header.last_offset
                    yield 0
        offsets.latest_offset = end_offset - 1  # the segment may lack batches at its end
    return read_bytes


def _put_keys(offsets: OffsetMap, superseded: SupersededOffsets, batch: memoryview, header: BatchHeader) -> None:
    found, deltas = list_keys(read_payload(batch, 0, header), header.records_count)
    base_offset, start = header.base_offset, superseded.first_offset
    if deltas is None and base_offset >= start and None not in found:
        superseded.note(offsets.put_all(cast("list[bytes]", found), range(base_offset, base_offset + len(found))))
        return
    if deltas is not None and header.records_count == header.last_offset_delta + 1:
        superseded.give_up()  # the second pass expects the records in the order of their offsets
    keyed = [(key, base_offset + delta) for delta, key in zip(deltas or range(len(found)), found, strict=True) if key is not None]
    keyed = [each for each in keyed if each[1] >= start]
    superseded.note(offsets.put_all([key for key, _ in keyed], [offset for _, offset in keyed]))


def _count_new_keys(offsets: OffsetMap, batch: memoryview, header: BatchHeader, start: int) -> int:
    """Returns how many keys of the batch are not in the map yet. Called only if the map may have no room for them."""
    found, deltas = list_keys(read_payload(batch, 0, header), header.records_count)
    first_delta = start - header.base_offset
    keys = {key for delta, key in zip(deltas or range(len(found)), found, strict=True) if key is not None and delta >= first_delta}
    return sum(offsets.find(key) == NOT_FOUND for key in keys)


def _clean_group(
    plan: CompactionPlan, group: list[SourceSegment], batches: BatchFilter, transactions: TransactionTracker
) -> Generator[int, None, CleanedSegment]:
    """Write the remaining records of these segments into one segment."""
    base_offset = group[0].base_offset
    segment = LogSegment.create(plan.directory, base_offset, plan.config, plan.now_ms, plan.disk, CLEANED_SUFFIX)
    transactions.keep_aborted = segment.indexes.transaction_index.append
    try:
        for source in group:
            with closing(_read_chunks(plan, source)) as chunks:
                for chunk in chunks:
                    yield len(chunk)
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


def _clean_chunk(chunk: memoryview, segment: LogSegment, batches: BatchFilter) -> Generator[int, None, None]:
    out = bytearray()
    headers: list[BatchHeader] = []
    for batch, header in _batches(chunk):
        _check_crc(batch, header)
        kept = batches.keep(batch, header)
        if kept is not None:
            out += kept.data
            headers.append(kept.header)
            if len(out) >= WRITE_BYTES:
                segment.append_batches(memoryview(out), headers)
                yield len(out)
                out, headers = bytearray(), []
        yield 0
    if headers:
        segment.append_batches(memoryview(out), headers)
        yield len(out)


def _read_chunks(plan: CompactionPlan, segment: SourceSegment) -> Generator[memoryview, None, None]:
    """Yields the segment in pieces of whole batches, of `read_bytes` or of one larger batch."""
    disk = plan.disk
    fd = disk.open(plan.directory / offset_file_name(segment.base_offset, LOG_SUFFIX), os.O_RDONLY | os.O_CLOEXEC)
    try:
        position = 0
        while position < segment.size_bytes:
            size = min(max(plan.read_bytes, HEADER_SIZE), segment.size_bytes - position)
            chunk = _pread(disk, fd, size, position)
            end = _whole_batches_end(chunk)
            if end == 0:
                chunk = _pread(disk, fd, _first_batch_size(chunk, segment.size_bytes - position), position)
                end = len(chunk)
            yield memoryview(chunk)[:end]
            position += end
    finally:
        disk.close(fd)


def _pread(disk: Disk, fd: int, size: int, position: int) -> bytes:
    data = disk.pread(fd, size, position)
    while len(data) < size:
        more = disk.pread(fd, size - len(data), position + len(data))
        if not more:
            raise DecodeError(f"a segment ends at {position + len(data)}, {size} bytes were expected at {position}")
        data += more
    return data


def _whole_batches_end(chunk: bytes) -> int:
    position, size = 0, len(chunk)
    while size - position >= HEADER_SIZE:
        (batch_length,) = _BATCH_LENGTH.unpack_from(chunk, position)
        if batch_length < HEADER_SIZE - LOG_OVERHEAD:
            raise DecodeError(f"batch length {batch_length} is smaller than a header")
        if (end := position + LOG_OVERHEAD + batch_length) > size:
            break
        position = end
    return position


def _first_batch_size(chunk: bytes, left_bytes: int) -> int:
    size = read_header(chunk).size_bytes
    if size > left_bytes:
        raise DecodeError(f"a batch of {size} bytes, {left_bytes} are left in the segment")
    return size


def _batches(chunk: memoryview) -> Iterator[tuple[memoryview, BatchHeader]]:
    position = 0
    while position < len(chunk):
        header = read_header(chunk, position)
        check_magic(header)
        end = position + header.size_bytes
        yield chunk[position:end], header
        position = end


def _check_crc(batch: memoryview, header: BatchHeader) -> None:
    """Kafka does not check it. But a rewritten batch gets a new checksum, which would hide its damage."""
    if crc32c(batch[CRC_START:]) != header.crc:
        raise DecodeError(f"the batch at offset {header.base_offset} does not match its checksum")


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
