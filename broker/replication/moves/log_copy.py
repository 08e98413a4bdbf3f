"""LogCopy: copies the log of a partition into a future log in another log directory, and keeps the two equal while the log changes.

It reads the missing records a chunk at a time; a thread reads chunks that are not in memory. Batches are appended byte for byte, in pieces
of less than a millisecond; epochs, producers and aborted transactions are recorded as a follower records them. If the log was truncated
meanwhile, the future log is truncated to where the epochs of both agree, as soon as no checkpoint of its directory names a higher offset.
The partition does not notify the copy: the copy looks at the log's offsets at each of its turns. It follows the log start without copying,
so records that DeleteRecords deletes are soon deleted here too. Source: kafka.server.ReplicaAlterLogDirsThread, LocalLeaderEndPoint.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from protocol.records import LOG_OVERHEAD
from storage.batches import find_start_within_batch
from storage.errors import StorageError, is_descriptor_shortage
from storage.file_slice import FileSlice
from storage.page_cache import ColdRead, not_waiting

if TYPE_CHECKING:
    from broker.loop.blocking import RunBlocking
    from broker.loop.clock import Clock, Timer
    from broker.replication.quotas import ReplicationQuota
    from storage.log import Log

READ_BYTES = 512 * 1024
"""Of one chunk, which is read on the loop if it is in memory, in a tenth of a millisecond: a thread's turn may take longer than that.
A larger batch is read whole, by a thread."""
PIECE_BYTES = 256 * 1024
PIECE_BATCHES = 50
"""Appended between two looks at the clock: a batch costs 10 µs, 256 KB a third of a millisecond."""
FLUSH_BYTES = 64 * 1024 * 1024
"""Appended between two flushes, so that the last one finds little to do and no write has to wait for the kernel's limits."""
CHECKPOINT_CHECK_MS = 20  # between two checks whether the checkpoint before a truncation was written, which takes two fsyncs
THROTTLE_CHECK_MS = 100  # between two checks whether the rate is below its bound again

_LENGTH_END = LOG_OVERHEAD  # base offset 8, batch length 4


class CopyStep(Enum):
    """The result of one step."""

    MORE = "more"  # there is more to do now
    WAITING = "waiting"  # for an event; then `on_ready` is called
    CAUGHT_UP = "caught up"  # both logs end at the same offset now


class LogCopy:
    """See the module's docstring. `on_ready()` is called on the loop after a step was WAITING. `may_truncate(log, offset)` is asked before
    the future log is truncated there (TruncationCheckpoints.may_truncate). Owner: one ReplicaMove.

    Every method may raise StorageError, whose path says which of the two disks it is, and KafkaError when the source is corrupt."""

    def __init__(
        self,
        source: Log,
        future: Log,
        *,
        clock: Clock,
        run_blocking: RunBlocking,
        quota: ReplicationQuota,
        may_truncate: Callable[[Log, int], bool],
        on_ready: Callable[[], None],
        on_error: Callable[[StorageError], None],
    ) -> None:
        self.source = source
        self.future = future
        self._clock = clock
        self._run_blocking = run_blocking
        self._quota = quota
        self._may_truncate = may_truncate
        self._on_ready = on_ready
        self._on_error = on_error
        self._is_closed = False
        self._truncations_count = -1  # the source's count at the last comparison
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._chunk = memoryview(b"")
        self._position = 0
        self._unflushed_bytes = 0
        self._flushes_count = 0  # in flight
        self._is_reading = False  # in a thread
        self._timer: Timer | None = None  # of the current wait

    def close(self) -> None:
        """Stop; the results of threads that still run are ignored."""
        self._is_closed = True
        self._drop_chunk()

    @property
    def lag(self) -> int:
        """How far the future log's end is behind, in offsets."""
        return self.source.log_end_offset - self.future.log_end_offset

    def step(self) -> CopyStep:
        """Do a piece of work of about a millisecond."""
        source, future = self.source, self.future
        if not self.follow_start() or self._is_reading:
            return CopyStep.WAITING
        if self._chunk:
            return self._append_piece()
        if self._unflushed_bytes >= FLUSH_BYTES:
            self.flush(self._on_ready)
        if future.log_end_offset == source.log_end_offset:
            return CopyStep.CAUGHT_UP
        if self._quota.is_exceeded:
            return self._wait(THROTTLE_CHECK_MS)
        return self._read()

    def follow_start(self) -> bool:
        """Move the future log's start to the log's start; it is empty then if it ends before that. Returns whether it was done now. If
        not, a checkpoint has to be written first, and `on_ready` is called."""
        source, future = self.source, self.future
        if source.truncations_count != self._truncations_count and not self._align():
            self._wait(CHECKPOINT_CHECK_MS)
            return False
        if future.log_start_offset < source.log_start_offset:
            if future.log_end_offset < source.log_start_offset:
                self._drop_chunk()
                future.truncate_fully_and_start_at(source.log_start_offset, now_ms=self._clock.now_ms())
            self._follow_watermarks()
        return True

    @property
    def is_flushing(self) -> bool:
        """Whether a thread looks at the future log's files under their present names. `on_ready` is called when it ends."""
        return self._flushes_count > 0

    def flush(self, on_flushed: Callable[[], None]) -> None:
        """Make the future log durable as it is now, in a thread, while the copy goes on."""
        self._unflushed_bytes = 0
        work = self.future.take_flush()
        if work is None:
            on_flushed()
            return

        def end(done: Any) -> None:
            self._flushes_count -= 1
            error = done.exception()
            if is_descriptor_shortage(error):
                self.future.give_back(work)  # it is tried again
            elif error is not None or self._is_closed:
                work.release()
            else:
                self.future.flushed(work)
            self._go_on(error, self.future, on_flushed)

        self._flushes_count += 1
        self._run_blocking(work.run).add_done_callback(end)

    def take_over_state(self) -> None:
        """Called when caught up: copy the state that no batch carries, so that the future log can replace the log."""
        source, future = self.source, self.future
        future.update_config(source.config)
        for entry in source.leader_epochs.entries():
            latest_epoch = future.leader_epochs.latest_epoch
            if latest_epoch is None or entry.epoch > latest_epoch:
                future.assign_leader_epoch(entry.epoch, entry.start_offset)  # an epoch without records
        self._follow_watermarks()

    # -- comparing -------------------------------------------------------------------------------------------------

    def _align(self) -> bool:
        """Truncate the future log to the records that both logs have. Returns whether it was done now."""
        source, future = self.source, self.future
        self._drop_chunk()
        end_offset = find_common_end(source, future)
        if self._truncations_count >= 0 and source.log_start_offset < future.log_start_offset:
            end_offset = source.log_start_offset  # it was started again below the future log's start
        if end_offset < future.log_end_offset:
            if not self._may_truncate(future, end_offset):
                return False
            future.truncate_to(end_offset, now_ms=self._clock.now_ms())
        self._truncations_count = source.truncations_count
        return True

    def _follow_watermarks(self) -> None:
        source, future = self.source, self.future
        future.set_high_watermark(min(source.high_watermark, future.log_end_offset))
        if future.set_log_start_offset(min(source.log_start_offset, future.high_watermark)):
            future.delete_old_segments(self._clock.now_ms())

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read(self) -> CopyStep:
        source, future = self.source, self.future
        offset = future.log_end_offset
        try:
            with not_waiting:
                records = source.read(offset, max_bytes=READ_BYTES, end_offset=source.log_end_offset, minimum_one_batch=True)
                if isinstance(records, bytes):
                    future.skip_to(source.log_end_offset, self._clock.now_ms())
                    return CopyStep.MORE
                if records.size <= READ_BYTES:
                    try:
                        self._take_chunk(records.read_into(self._buffer))
                        return CopyStep.MORE
                    finally:
                        records.release()
        except ColdRead as cold:
            self._bring_in(cold)
            return CopyStep.WAITING
        self._read_in_thread(records)
        return CopyStep.WAITING

    def _bring_in(self, cold: ColdRead) -> None:
        def end(done: Any) -> None:
            self._is_reading = False
            self._go_on(done.exception(), self.source, self._on_ready)

        self._is_reading = True
        self._run_blocking(cold.bring_in).add_done_callback(end)

    def _read_in_thread(self, records: FileSlice) -> None:
        truncations_count, offset = self._truncations_count, self.future.log_end_offset

        def end(done: Any) -> None:
            self._is_reading = False
            records.release()
            error = done.exception()
            if self.source.truncations_count != truncations_count:
                error = None  # read while the log was truncated
            elif error is None and not self._is_closed and self.future.log_end_offset == offset:
                self._take_chunk(memoryview(done.result()))
            self._go_on(error, self.source, self._on_ready)

        self._is_reading = True
        self._run_blocking(records.read).add_done_callback(end)

    def _go_on(self, error: BaseException | None, log: Log, on_success: Callable[[], None]) -> None:
        if self._is_closed:
            return
        if error is None:
            on_success()
            return
        failure = StorageError(str(error), path=log.directory)
        failure.__cause__ = error
        self._on_error(failure)

    def _wait(self, delay_ms: int) -> CopyStep:
        if self._timer is None:  # also after a step before the timer's end
            self._timer = self._clock.call_later(delay_ms, self._ready)
        return CopyStep.WAITING

    def _ready(self) -> None:
        self._timer = None
        if not self._is_closed:
            self._on_ready()

    def _take_chunk(self, records: memoryview) -> None:
        self._chunk = records
        self._position = 0
        self._quota.record(len(records))

    def _drop_chunk(self) -> None:
        self._chunk = memoryview(b"")
        self._position = 0

    # -- appending -------------------------------------------------------------------------------------------------

    def _append_piece(self) -> CopyStep:
        future, now_ms = self.future, self._clock.now_ms()
        start = self._position
        if start == 0 and future.log_end_offset == future.log_start_offset:
            base_offset = find_start_within_batch(future.log_end_offset, self._chunk)
            if base_offset is not None:  # the log start is within a batch, which is copied whole
                if not self._may_truncate(future, base_offset):
                    return self._wait(CHECKPOINT_CHECK_MS)
                future.truncate_fully_and_start_at(base_offset, now_ms=now_ms)
        end = self._position = find_piece_end(self._chunk, start)
        future.append_as_follower(self._chunk[start:end], now_ms=now_ms)
        self._unflushed_bytes += end - start
        self._follow_watermarks()
        if end == len(self._chunk):
            self._drop_chunk()
        return CopyStep.MORE


def find_piece_end(chunk: memoryview, start: int) -> int:
    """Returns the end of the next few whole batches in `chunk`, at least one."""
    end = start
    for _ in range(PIECE_BATCHES):
        if end >= len(chunk):
            break
        next_end = end + LOG_OVERHEAD + int.from_bytes(chunk[end + 8 : end + _LENGTH_END], "big")
        if end > start and next_end - start > PIECE_BYTES:
            break
        end = next_end
    return min(end, len(chunk))


def find_common_end(source: Log, future: Log) -> int:
    """Returns the end (exclusive) of the records that both logs have: as far as their epochs agree (KIP-101), compared from the last one
    down.

    An epoch that the source does not know is no match, even one below all of its epochs. After a kill, deleted records may be back
    without their epochs."""
    end_offset = min(source.log_end_offset, future.log_end_offset)
    known = {entry.epoch for entry in source.leader_epochs.entries()}
    for entry in reversed(future.leader_epochs.entries()):
        if entry.start_offset >= end_offset:
            continue  # none of its records are left
        if entry.epoch in known:
            return min(end_offset, source.end_offset_for_epoch(entry.epoch).end_offset)
        end_offset = entry.start_offset
    return min(end_offset, future.log_start_offset)
