"""Shard: the lifecycle of one partition's coordinator, and the writes in flight (Kafka's CoordinatorRuntime.CoordinatorContext).

    LOADING --log read, and committed, to its end--> ACTIVE --another broker leads--> RESIGNED
       '--------------- cannot be read ----------------'---- a commit was lost ----> FAILED

An operation computes records and a response. The records are replayed when they are appended, so that the next operation computes on
them. The response is sent when they are committed. Readers that must see committed state only read through `timeline`. Loading replays
records in the same way, so that a loaded shard has the same state as one that wrote the records.

A new leader's high watermark may lie below offsets that its predecessor has acknowledged (KIP-207). A shard that became active at once
would then show older state than its predecessor did. So the shard stays LOADING until everything that it has read is committed. If the
leader cannot commit, because its ISR is too small, the shard becomes active after the write timeout. Kafka's coordinator is active as
soon as it has read the log.

A shard that loses leadership drops its state, timers and pending writes at once. Writes are never rolled back.

Owns the state machine, its timers, its timeline and its writes. CoordinatorRuntime makes it, steps `load`, and ends it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from broker.coordination.coordinator_log import Buffer, CoordinatorLog, LogChunks, OnCommitted, TransactionalWrite
from broker.coordination.records import (
    NO_PRODUCER_ID,
    CoordinatorResult,
    RecordTable,
    UnknownRecordTypeError,
)
from broker.coordination.timeline import Change, Timeline
from broker.coordination.timers import CoordinatorTimers, DueTimers, Operation
from broker.loop.clock import Clock, Timer
from broker.loop.deferred import Deferred
from broker.observability.limited_log import LimitedLog
from protocol.errors import DecodeError, ErrorCode
from protocol.records import BatchHeader, ControlRecordType, iterate_headers, iterate_records, read_end_transaction_marker
from storage.markers import TransactionMarker

log = logging.getLogger("barnabas.coordination")

LOAD_TIMER = ("load",)

RESPONSE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The error that a coordinator's client gets when an append fails, as the client did not ask for an append
(CoordinatorOperationExceptionHelper)."""


class StateMachine(Protocol):
    """The state that a shard coordinates. The record table says which of its methods replays which records (Kafka's CoordinatorShard)."""

    def replay_end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The producer's transaction has ended: the records that were replayed for it take effect, or are dropped."""

    def on_loaded(self) -> None:
        """The shard is active: from now on it may write."""

    def on_unloaded(self) -> None:
        """The shard is unloaded: answer all waiting requests with NOT_COORDINATOR."""


Machine = TypeVar("Machine", bound=StateMachine)


Load = Generator[Deferred | None, Any, None]
"""The steps of a load."""


class ShardState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    RESIGNED = "resigned"


class _Chunks:
    """Iterates over LogChunks. `answer` is the value that is sent back for a Deferred."""

    def __init__(self, chunks: LogChunks) -> None:
        self._chunks = chunks
        self.answer: Any = None

    def __iter__(self) -> _Chunks:
        return self

    def __next__(self) -> Buffer | Deferred:
        answer, self.answer = self.answer, None
        return self._chunks.send(answer)


class _Write:
    """An append in flight, or, without changes, a wait for the appends before it.

    The log, the clock or the shard's end completes it, once. The log or the shard's end ends it, once, and completes it too."""

    __slots__ = ("_on_committed", "_on_outcome", "changes", "is_appended", "is_completed", "outcome", "timer")

    def __init__(self, on_committed: OnCommitted, on_outcome: OnCommitted | None = None) -> None:
        self._on_committed = on_committed
        self._on_outcome = on_outcome
        self.changes: Sequence[Change] = ()
        self.is_appended = False
        self.is_completed = False
        self.outcome: ErrorCode | None = None
        """The outcome that the log reported."""
        self.timer: Timer | None = None

    def end(self, error: ErrorCode) -> None:
        """Its fate is known. The answer comes first: what follows from a commit may take longer."""
        self.complete(error)
        on_outcome, self._on_outcome = self._on_outcome, None
        if on_outcome is not None:
            _tell(on_outcome, error)

    def complete(self, error: ErrorCode) -> None:
        """Call the callback, unless that was done."""
        if self.is_completed:
            return
        self.is_completed = True
        if self.timer is not None:
            self.timer.cancel()
        _tell(self._on_committed, error)


def _tell(callback: OnCommitted, error: ErrorCode) -> None:
    """Call the callback. Its exception is logged, so that the writes behind this one are completed too."""
    try:
        callback(error if error is ErrorCode.NONE else RESPONSE_ERRORS.get(error, error))
    except Exception:
        log.exception("a callback that waited for a commit failed")


class Shard(Generic[Machine]):
    """See the module's docstring. `on_failed` is called when the shard fails after it was active."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        *,
        coordinator_log: CoordinatorLog,
        clock: Clock,
        due_timers: DueTimers,
        table: RecordTable[Machine],
        make_machine: Callable[[Shard[Machine]], Machine],
        write_timeout_ms: int,
        limited_log: LimitedLog,
        on_failed: Callable[[Shard[Machine]], None],
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self.is_active = False
        """Whether the state is ACTIVE: an attribute, because every request reads it."""
        self._log = coordinator_log
        self._clock = clock
        self._table = table
        self._write_timeout_ms = write_timeout_ms
        self._limited_log = limited_log
        self._on_failed = on_failed
        self.timers = CoordinatorTimers(clock, due_timers, self._run_operation)
        self.timeline = Timeline()
        self.machine = make_machine(self)
        self._replay = table.bind(self.machine)
        self._writes: deque[_Write] = deque()
        self._waiting_for_load: list[Callable[[], None]] = []

    @property
    def has_writes(self) -> bool:
        """Whether an append is not committed yet."""
        return bool(self._writes)

    # Writing.

    def write(self, result: CoordinatorResult, producer: TransactionalWrite | None = None) -> None:
        """Append and replay the result's records. `on_committed` is called once they are committed, or at once if they were refused.
        With `producer` they belong to its open transaction: they are replayed with its id, and count by its end marker.

        A result without records waits until the writes before it are committed, because it was computed on them.
        A client that waits longer than the write timeout gets REQUEST_TIMED_OUT. The records still take effect if they are committed later.
        """
        assert self.is_active, "only an active shard writes"
        write = _Write(result.on_committed, result.on_outcome)
        if not result.records:
            write.outcome = ErrorCode.NONE
            self._await_commit(write)
            return
        now_ms = self._clock.now_ms()
        try:
            records = [self._table.encode(record, now_ms) for record in result.records]
        except ValueError as e:
            # A name is longer than a stored string may be. Kafka fails the request in the same way.
            self._limited_log.error("unencodable record", "partition %d: a record cannot be encoded: %s", self.partition, e)
            write.end(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._log.append(self.partition, records, lambda error: self._note_outcome(write, error), producer)
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        self._end_append(write, lambda: self._replay_records(result, producer_id), result.on_replayed)

    def write_marker(self, marker: TransactionMarker, on_committed: OnCommitted, on_outcome: OnCommitted | None = None) -> None:
        """Append the end of a producer's transaction, in the order of all writes. What was replayed of the transaction counts from then on,
        or never. The callbacks are those of a CoordinatorResult; a refused marker changes nothing."""
        assert self.is_active, "only an active shard writes"
        write = _Write(on_committed, on_outcome)
        self._log.append_marker(self.partition, marker, lambda error: self._note_outcome(write, error))
        self._end_append(write, lambda: self.machine.replay_end_transaction(marker.producer_id, is_commit=marker.is_commit))

    def _end_append(self, write: _Write, replay: Callable[[], None], on_replayed: Callable[[], None] | None = None) -> None:
        """Replay what was appended, and wait for its commit."""
        outcome = write.outcome
        if outcome is not None and outcome is not ErrorCode.NONE:
            write.end(outcome)
            return
        if not self.is_active:
            write.end(ErrorCode.NOT_COORDINATOR)  # the append cost this broker its leadership
            return
        is_committed = outcome is not None and not self._writes
        try:
            if not is_committed:
                self.timeline.record()
            replay()
            if not is_committed:
                write.changes = self.timeline.stop_recording()
            if on_replayed is not None:
                on_replayed()
        except Exception:
            log.exception("partition %d: a record that was appended could not be replayed", self.partition)
            self._fail(write, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._await_commit(write)

    def _replay_records(self, result: CoordinatorResult, producer_id: int) -> None:
        replay = self._replay
        for record in result.records:
            replay[type(record.key)](record.key, record.value, producer_id)

    def _await_commit(self, write: _Write) -> None:
        """Complete the write when it is committed and no write before it waits, which may be now."""
        if self._is_ended_at_once(write):
            return
        write.timer = self._clock.call_later(self._write_timeout_ms, write.complete, ErrorCode.REQUEST_TIMED_OUT)

    def _is_ended_at_once(self, write: _Write) -> bool:
        """Whether the write is committed and no write before it waits. Otherwise it waits now."""
        write.is_appended = True
        if write.outcome is not None and not self._writes:
            write.end(write.outcome)
            return True
        self._writes.append(write)
        return False

    def when_committed(self, callback: OnCommitted) -> None:
        """Call `callback` with NONE when all that was written up to now, or was read at the load, is committed; at once if it is.

        With an error if that cannot be known, for the shard has ended. There is no timeout."""
        if not self.is_active:
            callback(ErrorCode.NOT_COORDINATOR)
            return
        write = _Write(callback)
        write.outcome = ErrorCode.NONE
        self._is_ended_at_once(write)

    def is_committed(self, mapping: Mapping[Any, Any], key: Any) -> bool:
        """Whether what a dict holds for this key is committed. The timeline changes the dict.

        It is not while a write of it is in flight, nor while a shard that the write timeout has activated has read it from the log's
        uncommitted end."""
        return self.timeline.is_committed(mapping, key)

    def _note_outcome(self, write: _Write, error: ErrorCode) -> None:
        write.outcome = error
        if not write.is_appended or not self._writes:
            return  # `write` reads the outcome itself, or the shard has ended
        if error is not ErrorCode.NONE:
            self._fail(write, error)
            return
        # Writes complete in the order of the log, even if its appends do not.
        while self._writes and self._writes[0].outcome is not None:
            finished = self._writes.popleft()
            self.timeline.commit(finished.changes)
            finished.end(ErrorCode.NONE)

    def run(self, result: CoordinatorResult | None) -> None:
        """Write an operation's result, if there is one."""
        if result is not None:
            self.write(result)

    def _run_operation(self, operation: Operation, retry: Callable[[], None] | None) -> None:
        result = operation()
        if result is not None:
            self.write(result if retry is None else self.retried(result, retry))

    def retried(self, result: CoordinatorResult, retry: Callable[[], None]) -> CoordinatorResult:
        """The result, which also calls `retry` if its records were refused or their fate is unknown, unless the shard has ended."""

        def on_committed(error: ErrorCode) -> None:
            result.on_committed(error)
            if error is not ErrorCode.NONE and self.is_active:
                retry()

        return result._replace(on_committed=on_committed)

    def when_loaded(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the shard is active: at once if it is now, never if it ends before that."""
        if self.state is ShardState.LOADING:
            self._waiting_for_load.append(callback)
        elif self.is_active:
            callback()

    # Loading.

    def load(self) -> Load:
        """Replay the partition's log. Yields None after each record, or a Deferred, whose value the caller sends back.

        Everything above the high watermark is one write in flight: readers of committed state do not see it until it is committed."""
        replayed_count = 0
        uncommitted_end_offset: int | None = None
        for chunk in (chunks := _Chunks(self._log.read(self.partition))):
            if isinstance(chunk, Deferred):
                chunks.answer = yield chunk
                continue
            for position, header in iterate_headers(chunk):
                if uncommitted_end_offset is None and header.next_offset > self._log.committed_end_offset(self.partition):
                    self.timeline.record()
                    uncommitted_end_offset = header.next_offset
                elif uncommitted_end_offset is not None:
                    uncommitted_end_offset = header.next_offset
                replayed_count += header.records_count
                yield from self._replay_batch(chunk, position, header)
        log.debug("loaded %d records of partition %d, epoch %d", replayed_count, self.partition, self.leader_epoch)
        if uncommitted_end_offset is None:
            self._activate()
        else:
            self._await_loaded(uncommitted_end_offset)

    def _await_loaded(self, end_offset: int) -> None:
        """Make one write in flight of everything that was read and is not committed. The shard becomes active at its commit."""

        def note(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._activate()

        write = _Write(note)
        write.changes = self.timeline.stop_recording()
        write.is_appended = True
        self._writes.append(write)
        self.timers.schedule(LOAD_TIMER, self._write_timeout_ms, self._activate)
        self._log.when_committed(self.partition, end_offset, lambda error: self._note_outcome(write, error))

    def _activate(self) -> None:
        if self.state is not ShardState.LOADING:
            return
        self.state = ShardState.ACTIVE
        self.is_active = True
        self.timers.cancel(LOAD_TIMER)
        self.machine.on_loaded()
        waiting, self._waiting_for_load = self._waiting_for_load, []
        for callback in waiting:
            callback()

    def _replay_batch(self, chunk: Buffer, position: int, header: BatchHeader) -> Generator[None, None, None]:
        """Yields after each record. An unreadable record or batch is logged and skipped, so that the rest of the shard loads."""
        try:
            if header.is_control:
                marker = read_end_transaction_marker(chunk, position, header)
                if marker is not None:
                    self.machine.replay_end_transaction(header.producer_id, is_commit=marker.control_type is ControlRecordType.COMMIT)
                return
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            for stored in iterate_records(chunk, position):
                self._replay_stored(stored.key, stored.value, stored.offset, producer_id)
                yield
        except DecodeError as e:
            self._limited_log.error(
                "malformed batch", "partition %d has a malformed batch at offset %d: %s", self.partition, header.base_offset, e
            )

    def _replay_stored(self, key: bytes | None, value: bytes | None, offset: int, producer_id: int) -> None:
        try:
            record = self._table.decode(key, value)
        except UnknownRecordTypeError as e:
            self._limited_log.warning(
                "unknown record type",
                "partition %d offset %d: unknown record type %s is ignored; it may be left over from an aborted upgrade",
                self.partition,
                offset,
                e,
            )
        except DecodeError as e:
            self._limited_log.error("invalid record", "partition %d offset %d holds no valid record: %s", self.partition, offset, e)
        else:
            self._replay[type(record.key)](record.key, record.value, producer_id)

    # The end.

    def resign(self) -> None:
        """Another broker leads the partition: waiting requests are answered with NOT_COORDINATOR."""
        self._end(ShardState.RESIGNED)

    def fail_loading(self) -> None:
        """The log cannot be read."""
        self._end(ShardState.FAILED)

    def _fail(self, write: _Write, error: ErrorCode) -> None:
        """The state in memory may differ from the log now, so it is dropped. Most likely another broker leads."""
        self._limited_log.warning("lost write", "partition %d: a write was lost: %s; its state is dropped", self.partition, error.name)
        write.complete(error)
        self._end(ShardState.FAILED)
        write.end(error)
        self._on_failed(self)

    def _end(self, state: ShardState) -> None:
        if self.state in (ShardState.FAILED, ShardState.RESIGNED):
            self.state = state
            return
        self.state = state
        self.is_active = False
        writes, self._writes = self._writes, deque()
        for write in writes:
            write.end(ErrorCode.NOT_COORDINATOR)
        self.machine.on_unloaded()
        self.timers.cancel_all()
        self._waiting_for_load.clear()
