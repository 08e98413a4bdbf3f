"""Loading a log from its directory (Kafka's LogLoader): leftovers, recovery after an unclean stop, producer state.

Only batches are trusted. After an unclean stop every segment from the recovery point on is scanned: checksum, length, offsets that ascend
within the segment's range, epochs that do not decrease. (If they decrease from one segment to the next, a power cut has undone the removal
of the later one.) The log ends before the first batch that fails, whatever valid data may follow it: a torn tail can be a clean cut, zeros
to the page's end, or zeros and then valid later pages. The data behind it is set aside, not deleted. A hole between two valid batches does
not end the log, as in Kafka: compaction leaves holes, also in a topic whose policy has changed since, and the files do not tell a hole from
a loss. The batches also show the start of each leader epoch that the file of the epochs does not have yet.

A power cut can leave a hole between two segments. A closed segment is fsynced after the roll, not by it (UnifiedLog.roll does the same),
and meanwhile the kernel may write the new segment's first pages before the old one's last. Without flush.messages=1 such records may be
lost anyway. With it, nothing behind the hole was acknowledged, because a flush fsyncs the older segment first. But if a producer's batch
survived behind the hole, and it sends again the batches that are lost, it gets OUT_OF_ORDER_SEQUENCE_NUMBER and has to begin a new epoch.
To prevent that, each roll would have to wait for the disk before the next append. A follower with such a hole keeps it, as Kafka's does: it
fetches from its log end offset on. Called by Log only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from config.topic import LogConfig
from protocol.checksum import crc32c
from protocol.errors import DecodeError
from protocol.records import HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2, BatchHeader, read_end_transaction_marker
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import StorageError
from storage.files import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TRANSACTION_INDEX_SUFFIX,
    find_offset,
)
from storage.leader_epochs import LeaderEpochFileCache
from storage.log_segments import LogSegments, OpenSegments
from storage.producer_state import ProducerStateManager
from storage.producer_state_entry import BATCHES_TO_RETAIN, CompletedTransaction, ProducerStateEntry
from storage.segment import MAX_RELATIVE_OFFSET, LogSegment
from storage.set_aside import keep_tail, set_aside
from storage.swap import remove_leftovers
from storage.transaction_index import AbortedTransaction

logger = logging.getLogger("barnabas.storage")

SCAN_CHUNK_BYTES = 4 * 1024 * 1024
REFILL_BYTES = 8 * 1024 * 1024  # batches whose headers are read before a snapshot, which keeps one batch per producer only
REFILL_STEP_BYTES = 64 * 1024
BATCH_HEADER = Struct(">qiibIhiqqqhii")  # the fields of BatchHeader
OLD_MESSAGE = Struct(">qiIb")  # offset, size of what follows it, checksum of what follows that, magic
OLD_OVERHEAD = 14  # the smallest size: checksum, magic, attributes, lengths of key and value
_CRC_START = 21
LENGTH_POSITION = 8  # of a batch's length field


class LoadedLog(NamedTuple):
    """The contents of a loaded directory; the last segment is active."""

    segments: LogSegments
    log_start_offset: int
    log_end_offset: int
    recovery_point: int


def load_log(
    directory: Path,
    config: LogConfig,
    producers: ProducerStateManager,
    epochs: LeaderEpochFileCache,
    *,
    log_start_offset: int,
    recovery_point: int,
    was_clean_stop: bool,
    now_ms: int,
    open_segments: OpenSegments | None = None,
    disk: Disk = SYSTEM_DISK,
) -> LoadedLog:
    """Open the segments, recover them after an unclean stop, and bring producer state and epochs up to the log's end."""
    remove_leftovers(directory, disk)
    segments = _open_segments(directory, config, now_ms, open_segments, disk)
    was_cut = False
    if not was_clean_stop and len(segments):
        was_cut = _recover_segments(segments, producers, epochs, config, log_start_offset, recovery_point, now_ms, disk)
        if recovery_point > segments.active.read_end_offset():
            logger.warning("%s ends before its recovery point %d: every batch is checked", directory, recovery_point)
            recovery_point = 0
            was_cut |= _recover_segments(segments, producers, epochs, config, log_start_offset, recovery_point, now_ms, disk)
    if was_clean_stop or not len(segments):
        _report_missing(directory, segments, epochs, log_start_offset, recovery_point)
    if len(segments) and segments.active.read_end_offset() < log_start_offset:
        if was_cut:
            folder = set_aside(directory, segments.remove_first(len(segments)), disk)
            logger.warning("%s ends before its start offset %d: it starts empty there, see %s", directory, log_start_offset, folder)
            epochs.clear()
            producers.truncate_fully_and_start_at(log_start_offset)
        else:
            logger.error("%s ends before its start offset %d, which is ignored", directory, log_start_offset)
            log_start_offset = 0
    if not len(segments):
        segments.add(LogSegment.create(directory, log_start_offset, config, now_ms, disk))
    log_end_offset = segments.active.activate() if not segments.active.is_active else segments.active.base_offset
    log_start_offset = max(log_start_offset, segments.first.base_offset)
    if epochs.is_corrupt:
        _rebuild_epochs(segments, epochs)
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(log_start_offset)
    producers.remove_stray_snapshots([segment.base_offset for segment in segments])
    rebuild_producer_state(segments, producers, log_start_offset, log_end_offset, now_ms)
    return LoadedLog(segments, log_start_offset, log_end_offset, log_end_offset if was_clean_stop else min(recovery_point, log_end_offset))


def _report_missing(
    directory: Path, segments: LogSegments, epochs: LeaderEpochFileCache, log_start_offset: int, recovery_point: int
) -> None:
    """Log files that were removed while no broker ran. Only after a clean stop: a killed broker's files may be older than its log."""
    if not len(segments):
        if recovery_point > 0:
            logger.error("%s has no segment, though its log ended at offset %d: its records are missing", directory, recovery_point)
        return
    earliest, first_offset = epochs.earliest_entry, segments.first.base_offset
    start_offset = log_start_offset if earliest is None else max(log_start_offset, earliest.start_offset)
    if earliest is not None and start_offset < first_offset:
        logger.error("%s starts at offset %d, though its log started at %d: records are missing", directory, first_offset, start_offset)
    if (end_offset := segments.active.read_end_offset()) < recovery_point:
        logger.error("%s ends at offset %d, though its log ended at %d: records are missing", directory, end_offset, recovery_point)


def rebuild_producer_state(
    segments: LogSegments, producers: ProducerStateManager, log_start_offset: int, end_offset: int, now_ms: int
) -> None:
    """Load the newest snapshot at or before `end_offset`, refill the duplicate window behind it, replay the batches after it."""
    was_current = producers.map_end_offset == end_offset
    producers.truncate_and_reload(log_start_offset, end_offset, now_ms)
    if was_current:
        return
    snapshot_offset = producers.map_end_offset
    if not producers.is_empty:
        _refill_windows(segments, producers, snapshot_offset)
    for segment in segments.from_index(segments.floor_index(snapshot_offset)):
        start_offset = max(snapshot_offset, log_start_offset, segment.base_offset)
        if start_offset >= end_offset:
            break
        for position, header in segment.iterate_batches(segment.find_position(start_offset)):
            if header.base_offset >= end_offset:
                break
            if header.producer_id >= 0:
                batch = segment.read_batch(position, header.size_bytes) if header.is_control else b""
                replay_batch(producers, header, batch)
        if not segment.is_active:
            segment.unload()  # free it: there may be thousands
    producers.map_end_offset = end_offset


def _rebuild_epochs(segments: LogSegments, epochs: LeaderEpochFileCache) -> None:
    """Rebuild the epochs from the headers of all batches. Epochs without a record are lost, but not needed. The corrupt file stays until
    a flush replaces it: after a kill before that, the next start does this again."""
    epochs.truncate_from_end(0)
    latest_epoch = -1
    for segment in segments:
        for _, header in segment.iterate_batches():
            if header.partition_leader_epoch > latest_epoch:
                latest_epoch = header.partition_leader_epoch
                epochs.assign(latest_epoch, header.base_offset)
        if not segment.is_active:
            segment.unload()


def replay_batch(producers: ProducerStateManager, header: BatchHeader, batch: bytes | memoryview) -> AbortedTransaction | None:
    """Apply a batch that is in the log to the producer state. Returns the transaction that it aborts, if it does."""
    try:
        marker = read_end_transaction_marker(batch, 0, header) if header.is_control else None
    except DecodeError as error:
        raise StorageError(f"the control batch at offset {header.base_offset} is malformed: {error}") from error
    completed = producers.record_append(header, base_offset=header.base_offset, timestamp=header.max_timestamp, marker=marker)
    return None if completed is None else complete_transaction(producers, completed)


def complete_transaction(producers: ProducerStateManager, completed: CompletedTransaction) -> AbortedTransaction | None:
    """End a transaction whose marker is in the log. Returns its entry for the transaction index when it was aborted."""
    last_stable_offset = producers.last_stable_offset(completed)
    producers.complete_transaction(completed)
    if not completed.is_aborted:
        return None
    return AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, last_stable_offset)


def valid_batches(
    segment: LogSegment, previous_last_offset: int, position: int = 0, previous_epoch: int = -1
) -> Iterator[tuple[int, BatchHeader, memoryview, int]]:
    """Each batch from `position`, ending before the first invalid one: its position in the file, its header, and a buffer with its
    place in it, good until the next step."""
    size, largest_offset = segment.size_bytes, segment.base_offset + MAX_RELATIVE_OFFSET
    last_offset, last_epoch = max(previous_last_offset, segment.base_offset - 1), previous_epoch
    chunk_position = position
    chunk = memoryview(b"")
    while size - position >= HEADER_SIZE:
        start = position - chunk_position
        if start + HEADER_SIZE > len(chunk):
            chunk, chunk_position, start = _read_chunk(segment, position, HEADER_SIZE), position, 0
        # The header by hand: read_header, which raises for a short length, would be a third of the time of a 1 KB batch.
        header = BatchHeader._make(BATCH_HEADER.unpack_from(chunk, start))
        base_offset, length, epoch, magic, crc, _, last_offset_delta, _, _, _, _, _, _ = header
        size_bytes = length + LOG_OVERHEAD
        if (
            not HEADER_SIZE <= size_bytes <= size - position
            or magic != MAGIC_V2
            or last_offset_delta < 0
            or base_offset <= last_offset
            or base_offset + last_offset_delta > largest_offset
            or epoch < last_epoch
        ):
            return
        if start + size_bytes > len(chunk):
            chunk, chunk_position, start = _read_chunk(segment, position, size_bytes), position, 0
        if crc32c(chunk[start + _CRC_START : start + size_bytes]) != crc:
            return
        yield position, header, chunk, start
        position += size_bytes
        last_offset, last_epoch = base_offset + last_offset_delta, epoch


def _read_chunk(segment: LogSegment, position: int, least_bytes: int) -> memoryview:
    return memoryview(segment.read_batch(position, min(max(SCAN_CHUNK_BYTES, least_bytes), segment.size_bytes - position)))


def _recover_segments(
    segments: LogSegments,
    producers: ProducerStateManager,
    epochs: LeaderEpochFileCache,
    config: LogConfig,
    log_start_offset: int,
    recovery_point: int,
    now_ms: int,
    disk: Disk,
) -> bool:
    """Scan the segments from that of the recovery point on, and truncate at the first invalid batch. Returns whether there was one."""
    first = segments.floor_index(recovery_point)
    first_offset = segments.at(first).base_offset
    rebuild_producer_state(segments, producers, log_start_offset, first_offset, now_ms)
    scanned = _ScannedSegment(first_offset - 1, -1, 0)
    is_torn = False
    for index in range(first, len(segments)):
        segment = segments.at(index)
        if index > first:
            producers.map_end_offset = segment.base_offset
            producers.take_snapshot(fsync=False)
        scanned = _scan_segment(segment, producers, epochs, scanned)
        is_torn = scanned.end_position < segment.size_bytes
        if is_torn:
            _end_at_tear(segments, index, scanned, config, now_ms, disk)
        else:
            segment.finish_rebuild(scanned.end_position)
        segment.unload()
        if is_torn:
            break
    producers.map_end_offset = scanned.last_offset + 1
    return is_torn


class _ScannedSegment(NamedTuple):
    """The end of the last valid batch, and its epoch. `end_position` is 0 if the batch is in an earlier segment."""

    last_offset: int
    last_epoch: int
    end_position: int


def _scan_segment(
    segment: LogSegment, producers: ProducerStateManager, epochs: LeaderEpochFileCache, previous: _ScannedSegment
) -> _ScannedSegment:
    """Rebuild one segment's indexes from its valid batches. `previous` is the result for the segment before."""
    segment.begin_rebuild()
    last_offset = max(previous.last_offset, segment.base_offset - 1)
    epoch = previous.last_epoch
    end_position = 0
    epoch_end: int | None = segment.base_offset  # the next offset at which the cache may have another epoch
    for position, header, chunk, start in valid_batches(segment, last_offset, previous_epoch=epoch):
        size_bytes = header.batch_length + LOG_OVERHEAD
        last_offset = header.base_offset + header.last_offset_delta
        end_position = position + size_bytes
        segment.indexes.note_batch(position, size_bytes, last_offset, header.max_timestamp)
        if header.partition_leader_epoch != epoch or (epoch_end is not None and header.base_offset >= epoch_end):
            epoch = header.partition_leader_epoch
            if epoch >= 0:
                epochs.confirm(epoch, header.base_offset)
            epoch_end = epochs.find_end_of_epoch_at(header.base_offset)
        if header.producer_id >= 0:
            aborted = replay_batch(producers, header, chunk[start : start + size_bytes] if header.is_control else b"")
            if aborted is not None:
                segment.indexes.transaction_index.append(aborted)
    return _ScannedSegment(last_offset, epoch, end_position)


def _end_at_tear(segments: LogSegments, index: int, scanned: _ScannedSegment, config: LogConfig, now_ms: int, disk: Disk) -> None:
    """End the log behind the valid batches of a segment. Valid batches behind the tear, in it and in later segments, are set aside.

    The later segments go first: after a kill before this one is truncated, the next recovery finds the tear again."""
    segment, position = segments.at(index), scanned.end_position
    _refuse_old_format(segment, position)
    directory, torn_bytes = segment.log_path.parent, segment.size_bytes - position
    holds_batches = _holds_batches(segment, position)
    first = next(valid_batches(segment, -1), None) if position == 0 else None
    is_stale = first is not None and first[1].partition_leader_epoch < scanned.last_epoch  # truncated, which a power cut has undone
    overlaps = position == 0 and (is_stale or scanned.last_offset >= segment.base_offset)  # or the previous segment overlaps it
    is_whole = overlaps or (holds_batches and position == 0)
    dropped = segments.remove_from(index if is_whole else index + 1)
    folder = set_aside(directory, dropped, disk) if dropped else None
    if not is_whole:
        if holds_batches:
            folder = keep_tail(segment, position, folder, disk)
        segment.finish_rebuild(position)
    elif not overlaps:  # its offsets were assigned already and must not be assigned again
        segments.add(LogSegment.create(directory, segment.base_offset, config, now_ms, disk))
    logger.warning(
        "%s is torn at byte %d: the log ends at offset %d, without the %d bytes behind that and %d later segments%s",
        segment.log_path, position, scanned.last_offset + 1, torn_bytes, len(dropped) - is_whole,
        "" if folder is None else f", which are set aside in {folder}",
    )  # fmt: skip


def _holds_batches(segment: LogSegment, position: int) -> bool:
    """Whether a valid batch is at `position`, with only its offset wrong, or behind the invalid one there. A partly written batch, or
    zeros from a power cut, are not worth keeping."""
    if segment.size_bytes - position < HEADER_SIZE:
        return False
    length = int.from_bytes(segment.read_batch(position + LENGTH_POSITION, 4))
    next_position = position + LOG_OVERHEAD + length
    return any(next(valid_batches(segment, -1, start), None) is not None for start in (position, next_position))


def _refuse_old_format(segment: LogSegment, position: int) -> None:
    """StorageError when a valid message of format 0 or 1, which a Kafka before 0.11 wrote, is at `position`: it is not torn."""
    if segment.size_bytes - position < OLD_MESSAGE.size:
        return
    _, size, crc, magic = OLD_MESSAGE.unpack(segment.read_batch(position, OLD_MESSAGE.size))
    if magic not in (0, 1) or not OLD_OVERHEAD <= size <= segment.size_bytes - position - LOG_OVERHEAD:
        return
    magic_position = position + OLD_MESSAGE.size - 1
    if crc32(segment.read_batch(magic_position, position + LOG_OVERHEAD + size - magic_position)) == crc:
        raise StorageError(f"{segment.log_path} holds message format {magic} at byte {position}; format 2 alone is read")


def _refill_windows(segments: LogSegments, producers: ProducerStateManager, end_offset: int) -> None:
    """Restore each producer's last five batches, from the headers of at most REFILL_BYTES before `end_offset`.

    It goes backwards in growing steps and stops when all windows are complete: usually after the first step."""
    oldest = next(_headers_before(segments, end_offset, REFILL_BYTES), None)
    step_bytes = REFILL_STEP_BYTES
    while oldest is not None and any(_misses_batches(entry, oldest.base_offset) for entry in producers.producers.values()):
        headers = list(_headers_before(segments, end_offset, step_bytes))
        if not headers:
            return
        producers.refill(headers)
        end_offset = headers[0].base_offset
        step_bytes *= 4
        if end_offset <= oldest.base_offset:
            return


def _misses_batches(entry: ProducerStateEntry, oldest_offset: int) -> bool:
    if not entry.batches or len(entry.batches) >= BATCHES_TO_RETAIN:
        return False
    first = entry.batches[0]
    return first.first_sequence > 0 and first.first_offset > oldest_offset


def _headers_before(segments: LogSegments, end_offset: int, budget: int) -> Iterator[BatchHeader]:
    """The headers of about `budget` bytes of batches before `end_offset`, in order."""
    parts = []
    for index in range(segments.floor_index(max(end_offset - 1, 0)), -1, -1):
        segment = segments.at(index)
        end_position = segment.find_position(end_offset)
        start_position = segment.boundary_before(max(end_position - budget, 0))
        parts.append((segment, start_position))
        budget -= end_position - start_position
        if budget <= 0:
            break
    headers = chain.from_iterable(segment.iterate_batches(position) for segment, position in reversed(parts))
    for _, header in headers:
        if header.base_offset >= end_offset:
            return
        yield header


def _open_segments(directory: Path, config: LogConfig, now_ms: int, open_segments: OpenSegments | None, disk: Disk) -> LogSegments:
    """Every .log file as a closed segment; indexes without one are removed."""
    sizes: dict[int, int] = {}
    indexes: list[tuple[int, Path]] = []
    for name, _ in disk.scan(directory):
        offset = find_offset(name, LOG_SUFFIX)
        if offset is not None:
            sizes[offset] = disk.stat(directory / name).st_size
            continue
        found = (find_offset(name, suffix) for suffix in SEGMENT_SUFFIXES)
        indexes += [(offset, directory / name) for offset in found if offset is not None]
    for offset, path in indexes:
        if offset not in sizes:
            disk.unlink(path)
    segments = [LogSegment.open(directory, offset, config, now_ms, size_bytes=sizes[offset], disk=disk) for offset in sorted(sizes)]
    aborting = {offset for offset, path in indexes if path.suffix == TRANSACTION_INDEX_SUFFIX}
    for segment in segments:
        if segment.base_offset not in aborting:
            segment.indexes.transaction_index.note_absent()
    return LogSegments(segments, open_segments)
