"""The coordinator of one partition of `__consumer_offsets` that this broker leads (Kafka's GroupCoordinatorShard and its runtime).

Owns the partition's groups and offsets and the writes in flight. The one rule: records are appended first, replayed when they are
committed, and only then answered. State that was loaded and state that was lived through are the same, whatever happened.

Life: `load` is stepped to its end, then operations run, then `unload`. GroupCoordinator is the only caller.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Iterator

from broker.clock import Clock, Timer
from broker.coordination.coordinator_log import Buffer, CoordinatorLog
from broker.coordination.records import CoordinatorRecord, CoordinatorResult
from broker.coordination.timers import CoordinatorTimers, Operation
from broker.groups.group_config import GroupConfig
from broker.groups.group_metadata_manager import GroupMetadataManager
from broker.groups.offset_metadata_manager import NO_PRODUCER_ID, OffsetMetadataManager
from broker.groups.records import encode_record, read_record
from broker.limited_log import LimitedLog
from broker.loop_job import LoopJob
from protocol.errors import DecodeError, ErrorCode
from protocol.messages.stored.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from protocol.records import BatchHeader, ControlType, iterate_headers, iterate_records, read_end_transaction_marker

log = logging.getLogger("barnabas.groups")

WAITING_PER_TURN = 50
"""Who waited for the writes in flight and is told in one turn of the loop: reading a group's offsets takes 20 to 50 µs."""

LOAD_RECORDS_PER_STEP = 64
"""Records replayed before the event loop gets its turn: under a millisecond together."""

EXPIRED_RECORDS_PER_BATCH = 1000
"""Tombstones in one append: a batch far below max.message.bytes."""

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
"""What a group's client is told when an append fails: it asked for no append (CoordinatorOperationExceptionHelper)."""


class _Write:
    """One append in flight. `outcome` is what the log said of it; its result is told once, by the log, the clock or unloading."""

    __slots__ = ("is_told", "outcome", "result", "timer")

    def __init__(self, result: CoordinatorResult) -> None:
        self.result = result
        self.outcome: ErrorCode | None = None
        self.is_told = False
        self.timer: Timer | None = None

    def tell(self, error: ErrorCode) -> None:
        if self.is_told:
            return
        self.is_told = True
        if self.timer is not None:
            self.timer.cancel()
        self.result.on_committed(RESPONSE_ERRORS.get(error, error))


class GroupCoordinatorShard:
    """See the module's docstring. `is_loaded` says whether it may be asked anything."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        coordinator_log: CoordinatorLog,
        clock: Clock,
        random_source: random.Random,
        config: GroupConfig,
        topic_id_of: Callable[[str], bytes],
        limited_log: LimitedLog,
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.is_loaded = False
        self.is_unloaded = False
        self._log = coordinator_log
        self._clock = clock
        self._config = config
        self._limited_log = limited_log
        self._timers = CoordinatorTimers(clock, self._run_operation)
        self.group_manager = GroupMetadataManager(self._timers, clock, random_source, config, limited_log)
        self.offset_manager = OffsetMetadataManager(self.group_manager, clock, config, topic_id_of)
        self._writes: deque[_Write] = deque()
        self._waiting: deque[Callable[[], None]] = deque()
        self._ready_count = 0  # of `_waiting`, from its front: their wait is over
        self._telling = LoopJob(clock, self._tell_ready)

    # Writing.

    def write(self, result: CoordinatorResult) -> None:
        """Append the result's records; once committed, replay them and tell the result.

        A client that waits longer than offsets.commit.timeout.ms is told so, but the records are replayed when they are committed
        after all: memory must not forget what the log has.
        """
        assert self.is_loaded, "nothing is written before the log is read"
        now_ms = self._clock.now_ms()
        try:
            records = [encode_record(record, now_ms) for record in result.records]
        except ValueError as e:
            # A name longer than a stored string may be; Kafka fails the request in the same way.
            self._limited_log.error("unencodable record", "partition %d: a record cannot be encoded: %s", self.partition, e)
            result.on_committed(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        write = _Write(result)
        self._writes.append(write)
        self._log.append(self.partition, records, lambda error: self._finish_write(write, error))
        if write.outcome is None:
            write.timer = self._clock.call_later(self._config.commit_timeout_ms, write.tell, ErrorCode.REQUEST_TIMED_OUT)

    def _finish_write(self, write: _Write, error: ErrorCode) -> None:
        """Replay in the order of the log, whatever the order in which its appends are told done."""
        write.outcome = error
        while self._writes and (outcome := self._writes[0].outcome) is not None:
            finished = self._writes.popleft()
            if outcome is ErrorCode.NONE:
                for record in finished.result.records:
                    self._replay(record)
            finished.tell(outcome)
        self._run_waiting()

    def run(self, result: CoordinatorResult | None) -> None:
        """Write what an operation came to, if anything."""
        if result is not None:
            self.write(result)

    def _run_operation(self, operation: Operation) -> None:
        self.run(operation())

    def when_stable(self, callback: Callable[[], None]) -> None:
        """Call `callback` when loading is over and the writes in flight have ended: what is in memory then is what the log said when this
        was called, or later. Very many callbacks are called in turns."""
        self._waiting.append(callback)
        self._run_waiting()

    def _run_waiting(self) -> None:
        if self.is_unloaded or (self.is_loaded and not self._writes):
            self._ready_count = len(self._waiting)
            if self._ready_count and not self._telling.is_waiting and self._tell_ready():
                self._telling.resume()

    def _tell_ready(self) -> bool:
        """Tell a few; whether there are more."""
        for _ in range(WAITING_PER_TURN):
            if not self._ready_count:
                return False
            self._ready_count -= 1
            self._waiting.popleft()()
        return self._ready_count > 0

    # Loading and unloading.

    def load(self) -> Iterator[None]:
        """Replay the partition's log, a step at a time: whoever drives this lets the event loop run at each yield."""
        replayed_count = 0
        for chunk in self._log.read(self.partition):
            for position, header in iterate_headers(chunk):
                for record in self._read_batch(chunk, position, header):
                    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
                    self._replay(record, producer_id)
                    replayed_count += 1
                    if replayed_count % LOAD_RECORDS_PER_STEP == 0:
                        yield
        self.is_loaded = True
        self.group_manager.on_loaded(self.run)
        log.debug(
            "loaded %d groups from %d records of partition %d, epoch %d",
            len(self.group_manager.groups),
            replayed_count,
            self.partition,
            self.leader_epoch,
        )
        self._run_waiting()

    def _read_batch(self, chunk: Buffer, position: int, header: BatchHeader) -> Iterator[CoordinatorRecord]:
        """The batch's records of the kinds served here. A malformed one is skipped: the other groups must not suffer for it."""
        try:
            if header.is_control:
                marker = read_end_transaction_marker(chunk, position, header)
                if marker is not None:
                    is_commit = marker.control_type is ControlType.COMMIT
                    self.offset_manager.replay_end_transaction(header.producer_id, is_commit=is_commit)
                return
            for stored in iterate_records(chunk, position):
                try:
                    record = read_record(stored.key, stored.value)
                except DecodeError as e:
                    self._limited_log.error(
                        "invalid record", "partition %d offset %d holds no valid record: %s", self.partition, stored.offset, e
                    )
                    continue
                if record is not None:
                    yield record
        except DecodeError as e:
            self._limited_log.error(
                "malformed batch", "partition %d has a malformed batch at offset %d: %s", self.partition, header.base_offset, e
            )

    def unload(self) -> None:
        """Another broker leads the partition: everyone who waits is sent to look for it. Nothing may be asked any more."""
        self.is_unloaded = True
        self.is_loaded = False
        writes, self._writes = self._writes, deque()
        for write in writes:
            write.tell(ErrorCode.NOT_COORDINATOR)
        self.group_manager.on_unloaded()
        self._run_waiting()

    def _replay(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue), "the key says what the value is"
            self.offset_manager.replay(key, value, producer_id)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue), "the key says what the value is"
            self.group_manager.replay(key.group, value)

    # Housekeeping.

    def expire(self, group_ids: list[str]) -> None:
        """Write the tombstones that are due for these groups; a commit in flight puts it off to the next time."""
        if not self.is_loaded or self._writes:
            return
        records = [
            record for group_id in group_ids if group_id in self.group_manager.groups for record in self.offset_manager.expire(group_id)
        ]
        self._write_tombstones(records)

    def delete_topics(self, topics: frozenset[str]) -> None:
        """Write the tombstones of all offsets in deleted topics, after the writes in flight, which may add to them."""
        self.when_stable(lambda: self._write_tombstones(self.offset_manager.delete_topics(topics)) if self.is_loaded else None)

    def _write_tombstones(self, records: list[CoordinatorRecord]) -> None:
        for start in range(0, len(records), EXPIRED_RECORDS_PER_BATCH):
            batch = records[start : start + EXPIRED_RECORDS_PER_BATCH]
            self.write(CoordinatorResult(batch, self._tombstones_written))

    def _tombstones_written(self, error: ErrorCode) -> None:
        # They are due again at the next check.
        if error is not ErrorCode.NONE:
            self._limited_log.warning(
                "unwritten tombstones", "partition %d: tombstones could not be written: %s", self.partition, error.name
            )
