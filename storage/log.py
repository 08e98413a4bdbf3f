"""One partition's log (Kafka's UnifiedLog): appends, reads, watermarks, and what goes with the records: producers and epochs.

Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset; log_start_offset <= local_log_start_offset, from
which on the records are on this disk. An append is all or nothing. Within one append the order is: validate the header, look for a
duplicate, assign offsets, note a new epoch, maybe roll, write the data, its index entries, producer state, log end offset.
The segments, their truncation and their flushing are LocalLog's.
Owner: one Partition (or the metadata log) on the event loop; only FlushWork and the deletion of files leave it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from config.topic import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.records import NO_TIMESTAMP, BatchHeader, EndTransactionMarker
from storage import retention
from storage.aborted_reads import find_aborted
from storage.batches import check_own_batches, read_replicated_batches
from storage.errors import StorageError
from storage.file_slice import FileSlice
from storage.files import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from storage.flush import FlushWork
from storage.leader_epochs import EpochEndOffset, LeaderEpochFileCache
from storage.local_log import LocalLog
from storage.log_results import AppendResult
from storage.markers import AcceptedMarker, MarkerResult, TransactionMarker, judge_markers, split_markers
from storage.producer_state import ProducerStateManager
from storage.recovery import complete_transaction, rebuild_producer_state
from storage.segment import LogSegment
from storage.tail_cache import TailCache
from storage.timestamp_search import TimestampOffset, find_max_timestamp, find_offset_by_timestamp
from storage.transaction_index import AbortedTransaction
from storage.validation import AppendOrigin, PreparedBatch, ValidatedBatch, assign_offsets, check_batch, check_own_batch
from storage.verification import TransactionAppend

LATEST_EPOCH = 2**31 - 1  # of a writer that has no other leader beside it


class Log:
    """See the module's docstring. Make one with `open_log` (storage/log_opener.py)."""

    def __init__(
        self,
        local: LocalLog,
        topic: str,
        partition: int,
        topic_id: bytes,
        *,
        leader_epochs: LeaderEpochFileCache,
        producers: ProducerStateManager,
        log_start_offset: int,
        log_end_offset: int,
    ) -> None:
        self.directory = local.directory
        self.log_dir = str(local.directory.parent)
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.config = local.config
        self.local_log_start_offset = self.log_start_offset = log_start_offset
        self.last_stable_offset = self.high_watermark = log_start_offset
        self.log_end_offset = log_end_offset
        self.segments = local.segments
        self.deletions = local.deletions
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.start_verification = producers.start_verification  # before the append of a transactional batch
        self._local = local
        self._flushes = local.flushes
        if leader_epochs.changes_count:  # since they were read: by recovery
            self._flushes.note_epochs(leader_epochs)
        self.clean_end_offset: int | None = None
        """Below it each key was there once, after a compaction (Kafka's cleaner checkpoint); None before the first."""
        self.checkpointed_end_offset = 0  # beyond it no checkpoint names an offset of this log
        self._latest_epoch: int | None = None  # the leader epoch of the last append, to ask the cache only when it changes
        self.tail: TailCache | None = None  # where the partition has followers

    # -- append ----------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview | PreparedBatch,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verify_zstd_allowed: bool = True,
        transaction: TransactionAppend | None = None,
    ) -> AppendResult:
        """Validate, assign offsets (in place) and write. A client's append is one batch; a coordinator's may be several. `transaction` is
        what a transactional batch has to show.

        KafkaError: refused, nothing was appended. StorageError: the disk failed, nothing was appended."""
        config = self.config
        if isinstance(records, PreparedBatch):
            records, checked = records.take(config, now_ms, verify_zstd_allowed)
        elif origin is not AppendOrigin.CLIENT:
            own = check_own_batch(records, config, now_ms)
            if own is None:
                return self._append_batches_as_leader(records, leader_epoch, now_ms, origin, transaction)
            checked = own
        else:
            checked = check_batch(records, config, now_ms=now_ms, zstd_allowed=verify_zstd_allowed)
        header = checked.header
        if header.producer_id >= 0:
            duplicate = self.producers.find_duplicate(header)
            if duplicate is not None:
                return AppendResult(
                    duplicate.first_offset, duplicate.last_offset, duplicate.timestamp,
                    self.log_start_offset, header.records_count, len(records), True, False,
                )  # fmt: skip
            self.producers.check_append(header, origin, transaction=transaction)
        batch = assign_offsets(records, checked, config, first_offset=self.log_end_offset, leader_epoch=leader_epoch, now_ms=now_ms)
        self._write_batch(batch, None, leader_epoch, now_ms)
        return AppendResult(
            batch.base_offset, batch.last_offset, batch.log_append_time_ms,
            self.log_start_offset, batch.records_count, batch.size_bytes, False, True,
        )  # fmt: skip

    def append_markers(self, markers: Sequence[TransactionMarker], *, leader_epoch: int, now_ms: int) -> list[MarkerResult]:
        """Append the ends of transactions as the leader, in their order, each as a batch of its own. Each is judged by itself: those that
        are refused leave the others as they are. StorageError: the disk failed; those before may be appended."""
        results: list[MarkerResult] = []
        for run in split_markers(markers, self.config.segment_bytes):
            judged, accepted = judge_markers(
                run, self.producers, self.config, first_offset=self.log_end_offset, leader_epoch=leader_epoch, now_ms=now_ms
            )
            results += judged
            if accepted:
                self._write_markers(accepted, leader_epoch, now_ms)
        return results

    def append_as_follower(self, records: memoryview, *, now_ms: int, leader_epoch: int = LATEST_EPOCH) -> AppendResult:
        """Write batches that a leader has assigned offsets to. Left out are a partial last batch, as fetches may end with one, and
        everything from the first batch on that is of a higher epoch than `leader_epoch`, in which the fetch was sent.

        All are checked before the first is written. KafkaError: CORRUPT_MESSAGE, or OFFSET_OUT_OF_RANGE when the first batch lies
        before the log end offset; nothing was appended."""
        batches = read_replicated_batches(records, self.log_end_offset, leader_epoch)
        if not batches:
            end = self.log_end_offset
            return AppendResult(end, end - 1, NO_TIMESTAMP, self.log_start_offset, 0, 0, False, False)
        headers = [batch.header for batch in batches]
        first, last = headers[0], headers[-1]
        last_offset = last.last_offset
        size_bytes = batches[-1].position + last.size_bytes
        for header in headers:
            if header.partition_leader_epoch != self.leader_epochs.latest_epoch and header.partition_leader_epoch >= 0:
                self.assign_leader_epoch(header.partition_leader_epoch, header.base_offset)
        max_timestamp = max([header.max_timestamp for header in headers])
        segment = self._segment_for(size_bytes, max_timestamp, first.base_offset, last_offset, now_ms)
        try:
            segment.append_batches(records[:size_bytes], headers)
        except OSError as error:
            raise self._storage_error("append to", error) from error
        for _, header, marker in batches:
            if header.producer_id >= 0:
                self._note_producer(header, header.base_offset, header.max_timestamp, marker)
        self._end_append(last_offset + 1, now_ms)
        count = sum([header.records_count for header in headers])
        return AppendResult(first.base_offset, last_offset, NO_TIMESTAMP, self.log_start_offset, count, size_bytes, False, True)

    def skip_to(self, offset: int, now_ms: int) -> None:
        """End at `offset`, without a record between: compaction has removed the last ones of the log that this one copies."""
        self.roll(now_ms, offset)
        self._end_append(offset, now_ms)

    # -- read ------------------------------------------------------------------------------------------------------

    def read(self, start_offset: int, *, max_bytes: int, end_offset: int, minimum_one_batch: bool = False) -> FileSlice | bytes:
        """Whole batches from the one that holds `start_offset`, none that reaches `end_offset` (exclusive) or beyond. The caller releases a
        FileSlice.

        At most `max_bytes`, unless `minimum_one_batch` lets a larger first batch through. KafkaError OFFSET_OUT_OF_RANGE outside
        [local log start offset, log end offset]. ColdRead where it may not wait for the disk."""
        if start_offset > self.log_end_offset or start_offset < self.local_log_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {start_offset} is not in [{self.local_log_start_offset}, {self.log_end_offset}] of {self.topic}-{self.partition}",
            )
        if start_offset >= end_offset:
            return b""
        if self.tail is not None and end_offset >= self.log_end_offset and (kept := self.tail.find(start_offset, max_bytes)) is not None:
            return kept
        try:
            found = self.segments.slice(start_offset, max_bytes, end_offset, self.log_end_offset, minimum_one_batch)
            return b"" if found is None else found
        except OSError as error:
            raise self._storage_error("read from", error) from error

    def aborted_transactions(self, start_offset: int, records: FileSlice | bytes) -> list[AbortedTransaction]:
        """The aborted transactions with records in `records`, which `read` has just returned for `start_offset`; at most one for each
        HEADER_SIZE bytes. ColdRead where it may not wait for the disk."""
        try:
            return find_aborted(self.segments, start_offset, records, self.log_end_offset)
        except OSError as error:
            raise self._storage_error("read from", error) from error

    def find_offset_by_timestamp(self, timestamp_ms: int, *, end_offset: int) -> TimestampOffset | None:
        """The first record below `end_offset` whose timestamp is `timestamp_ms` or later."""
        try:
            return find_offset_by_timestamp(self.segments, timestamp_ms, start_offset=self.log_start_offset, end_offset=end_offset)
        except OSError as error:
            raise self._storage_error("search", error) from error

    def find_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp of the log."""
        try:
            return find_max_timestamp(self.segments)
        except OSError as error:
            raise self._storage_error("search", error) from error

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Where `epoch` ends in this log; (-1, -1) when that is not known (KIP-101, KIP-279)."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    # -- watermarks ------------------------------------------------------------------------------------------------

    def set_high_watermark(self, offset: int) -> int:
        """Set it within [log start offset, log end offset] and complete the transactions it passed. Returns the value taken."""
        if offset == self.log_end_offset and not self.producers.has_transactions:  # after nearly every append
            self.high_watermark = self.last_stable_offset = offset
            return offset
        self.high_watermark = offset = min(max(offset, self.log_start_offset), self.log_end_offset)
        if not self.producers.has_transactions:
            self.last_stable_offset = offset
            return offset
        self.producers.on_high_watermark_updated(offset)
        self._update_last_stable_offset()
        return offset

    def set_log_start_offset(self, offset: int) -> bool:
        """Raise it to `offset`; returns whether it moved. KafkaError OFFSET_OUT_OF_RANGE above the high watermark."""
        if offset > self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"log start offset {offset} is above the high watermark {self.high_watermark}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        if self.leader_epochs.truncate_from_start(offset):
            self._flushes.note_epochs(self.leader_epochs)
        self.producers.on_log_start_offset_incremented(offset)
        self._update_last_stable_offset()
        return True

    def assign_leader_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """Note where an epoch starts, before any record of it: by default at the log's end, as a new leader does."""
        self._latest_epoch = epoch
        if self.leader_epochs.assign(epoch, self.log_end_offset if start_offset is None else start_offset):
            self._flushes.note_epochs(self.leader_epochs, is_new=True)

    def update_config(self, config: LogConfig) -> None:
        """Takes effect with the next append, roll or retention check; open segments keep their index interval."""
        self.config = self._local.config = config

    # -- truncation ------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, now_ms: int = 0) -> bool:
        """Remove the batch that holds `offset` and everything after it. Returns whether anything was removed."""
        if offset >= self.log_end_offset:
            # An epoch may have been noted at the end without a record: another leader may have begun another one there.
            self._cut_epochs(self.log_end_offset)
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        offset = self._local.truncate_to(offset, now_ms)
        self._cut_state(offset, min(offset, self.log_start_offset), now_ms)
        return True

    def truncate_fully_and_start_at(self, offset: int, *, log_start_offset: int | None = None, now_ms: int = 0) -> None:
        """Remove everything; the next append gets `offset`. A `log_start_offset` before it is where the log starts elsewhere: what is
        between the two is not on this disk."""
        self._local.truncate_fully_and_start_at(offset, now_ms)
        self.leader_epochs.clear()
        self.producers.truncate_fully_and_start_at(offset)
        self._cut_state(offset, offset if log_start_offset is None else log_start_offset, now_ms)

    @property
    def truncations_count(self) -> int:
        """How often its end was cut since it was opened."""
        return self._flushes.truncations_count

    # -- rolling and retention -------------------------------------------------------------------------------------

    def roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """Start a new active segment at `base_offset` (by default the log end offset); the old one asks to be flushed."""
        base_offset = self.log_end_offset if base_offset is None else base_offset
        if not self._local.roll(base_offset, now_ms):
            return
        self.producers.map_end_offset = base_offset
        snapshot = self.producers.take_snapshot(fsync=False)
        if snapshot is not None:
            self._flushes.note_paths([snapshot])

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention; returns how many segments were removed. Their files wait in `deletions` for file.delete.delay.ms."""
        try:
            count = retention.count_deletable(
                self.segments, self.config,
                log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark, now_ms=now_ms,
            )  # fmt: skip
        except OSError as error:
            raise self._storage_error("delete segments of", error) from error
        if count == 0:
            return 0
        if count == len(self.segments):
            self.roll(now_ms)
        self._local.remove_first(count, now_ms)
        self.local_log_start_offset = max(self.local_log_start_offset, self.segments.first.base_offset)
        self.set_log_start_offset(max(self.log_start_offset, self.local_log_start_offset))
        return count

    def replace_segments(self, old: list[LogSegment], new: list[LogSegment], now_ms: int) -> bool:
        """Put compacted segments in the place of those that they were made from: see LocalLog.replace_segments."""
        return self._local.replace_segments(old, new, now_ms)

    # -- flushing --------------------------------------------------------------------------------------------------

    @property
    def durable_end_offset(self) -> int:
        """Every batch below it was synchronised."""
        return self._local.recovery_point

    @property
    def recovery_point(self) -> int:
        """The same, as Kafka names it where a recovery begins."""
        return self._local.recovery_point

    @property
    def has_unflushed(self) -> bool:
        return self._local.has_unflushed(self.log_end_offset)

    def flush_is_due(self, now_ms: int) -> bool:
        """After a roll, with flush.messages unflushed, or flush.ms after the oldest unflushed append."""
        return self._local.flush_is_due(self.log_end_offset, now_ms)

    def take_flush(self) -> FlushWork | None:
        """What makes the log durable up to its end; None when it is. Run it off the loop, then `flushed`, or `release` it if it failed."""
        return self._local.take_flush(self.log_end_offset)

    def flushed(self, work: FlushWork) -> None:
        """`work` ran: everything below its end offset is durable, unless the log was truncated meanwhile."""
        self._local.flushed(work)

    def give_back(self, work: FlushWork) -> None:
        """The process had not enough descriptors for `work`: the next flush does what it was to do."""
        self._local.flushes.give_back(work)

    def flush(self) -> None:
        """Make everything durable now; blocks. StorageError when the disk fails."""
        if (work := self.take_flush()) is None:
            return
        try:
            work.run()
        except StorageError:
            work.release()
            raise
        self.flushed(work)

    # -- life ------------------------------------------------------------------------------------------------------

    def note_created(self) -> None:
        """The directory is new: its first flush makes its own entry and partition.metadata durable too."""
        self._flushes.note_paths([self.directory / PARTITION_METADATA])

    def note_renamed(self, directory: Path) -> None:
        """The directory has another name in the same log directory (storage/relocation.py, which renames the segments' paths too)."""
        self.directory = self.producers.directory = directory
        self.leader_epochs.note_renamed(directory / LEADER_EPOCH_CHECKPOINT)
        self._local.note_renamed(directory)

    def write_state(self) -> None:
        """Write what a clean stop leaves beside the batches, without fsync: indexes and a snapshot. The next flush writes the epochs."""
        self._local.write_indexes()
        snapshot = self.producers.take_snapshot()
        if snapshot is not None:
            self._flushes.note_paths([snapshot])

    def close(self) -> None:
        """Write the state, make everything durable, free every descriptor; blocks."""
        self.write_state()
        self.flush()
        self.abandon()

    def abandon(self) -> None:
        """Free every descriptor without writing: all is written, the disk failed, or the log is about to be deleted."""
        self.leader_epochs.close()
        self._local.abandon()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _append_batches_as_leader(
        self, records: memoryview, leader_epoch: int, now_ms: int, origin: AppendOrigin, transaction: TransactionAppend | None
    ) -> AppendResult:
        """The broker's own batches: all are checked before the first is written."""
        config = self.config
        checked = check_own_batches(records, config, self.producers, now_ms, origin, transaction)
        base_offset, count, append_time_ms = self.log_end_offset, 0, NO_TIMESTAMP
        for view, batch, marker in checked:
            assigned = assign_offsets(view, batch, config, first_offset=self.log_end_offset, leader_epoch=leader_epoch, now_ms=now_ms)
            self._write_batch(assigned, marker, leader_epoch, now_ms)
            count += assigned.records_count
            append_time_ms = assigned.log_append_time_ms
        last_offset = self.log_end_offset - 1
        return AppendResult(base_offset, last_offset, append_time_ms, self.log_start_offset, count, len(records), False, True)

    def _write_batch(self, batch: ValidatedBatch, marker: EndTransactionMarker | None, leader_epoch: int, now_ms: int) -> None:
        """Write the epoch, the data, its index entries, then producer state and log end offset."""
        base_offset, last_offset = batch.base_offset, batch.last_offset
        if leader_epoch != self._latest_epoch:
            self.assign_leader_epoch(leader_epoch, base_offset)
        segment = self._segment_for(batch.size_bytes, batch.max_timestamp, base_offset, last_offset, now_ms)
        try:
            position = segment.write(batch.buffer)
            segment.note_batch(position, batch.size_bytes, last_offset, batch.max_timestamp)
        except OSError as error:
            raise self._storage_error("append to", error) from error
        if self.tail is not None:
            self.tail.note(base_offset, batch.buffer)
        if (header := batch.header).producer_id >= 0:
            self._note_producer(header, base_offset, batch.max_timestamp, marker)
            self._update_last_stable_offset()
        self._end_append(last_offset + 1, now_ms)

    def _write_markers(self, accepted: list[AcceptedMarker], leader_epoch: int, now_ms: int) -> None:
        """As `_write_batch`, for all of these at once."""
        base_offset, last_offset = self.log_end_offset, self.log_end_offset + len(accepted) - 1
        if leader_epoch != self._latest_epoch:
            self.assign_leader_epoch(leader_epoch, base_offset)
        records = b"".join([each.records for each in accepted])
        segment = self._segment_for(len(records), accepted[0].header.max_timestamp, base_offset, last_offset, now_ms)
        try:
            segment.append_batches(memoryview(records), [each.header for each in accepted])
        except OSError as error:
            raise self._storage_error("append to", error) from error
        if self.tail is not None:
            self.tail.note(base_offset, records)
        for control, header, _ in accepted:
            self._note_producer(header, header.base_offset, header.max_timestamp, control)
        self._update_last_stable_offset()
        self._end_append(last_offset + 1, now_ms)

    def _end_append(self, log_end_offset: int, now_ms: int) -> None:
        self.log_end_offset = log_end_offset
        self.producers.map_end_offset = log_end_offset
        if self._flushes.unflushed_since_ms is None:
            self._flushes.unflushed_since_ms = now_ms

    def _segment_for(self, size_bytes: int, max_timestamp: int, first_offset: int, last_offset: int, now_ms: int) -> LogSegment:
        """The active segment, a new one if this batch does not fit the present one."""
        config = self.config
        active = self.segments.active
        if active.should_roll(size_bytes, max_timestamp, last_offset, config.segment_bytes, config.max_segment_ms, now_ms):
            self.roll(now_ms, first_offset)
            active = self.segments.active
        return active

    def _note_producer(self, header: BatchHeader, base_offset: int, max_timestamp: int, marker: EndTransactionMarker | None) -> None:
        """A producer's batch is in the log; an aborted transaction that it ends goes into the transaction index."""
        completed = self.producers.record_append(header, base_offset=base_offset, timestamp=max_timestamp, marker=marker)
        aborted = None if completed is None else complete_transaction(self.producers, completed)
        if aborted is not None:
            self.segments.note_aborted(aborted)

    def _cut_state(self, log_end_offset: int, log_start_offset: int, now_ms: int) -> None:
        """The segments end at `log_end_offset` now: bring everything else there."""
        self._local.note_truncated(log_end_offset)
        self._latest_epoch = None
        self.tail = None if self.tail is None else TailCache()
        self.log_end_offset = log_end_offset
        self.log_start_offset = log_start_offset
        self.local_log_start_offset = max(log_start_offset, self.segments.first.base_offset)
        if self.clean_end_offset is not None:
            self.clean_end_offset = min(self.clean_end_offset, log_end_offset)
        self._cut_epochs(log_end_offset)
        rebuild_producer_state(self.segments, self.producers, log_start_offset, log_end_offset, now_ms)
        self.set_high_watermark(self.high_watermark)

    def _cut_epochs(self, end_offset: int) -> None:
        if self.leader_epochs.truncate_from_end(end_offset):
            self._flushes.note_epochs(self.leader_epochs)

    def _update_last_stable_offset(self) -> None:
        first_unstable = self.producers.first_unstable_offset
        high_watermark = self.high_watermark
        if first_unstable is None or first_unstable > high_watermark:
            self.last_stable_offset = high_watermark
        else:
            self.last_stable_offset = max(first_unstable, self.log_start_offset)

    def _storage_error(self, action: str, error: OSError) -> StorageError:
        return StorageError(f"cannot {action} {self.directory}: {error}", path=self.directory)
