"""FollowerLogs: applies a leader's answers to the logs of the partitions that follow it: appends, truncates, and gives up what failed.

Source: kafka.server.ReplicaFetcherThread (processPartitionData, truncate), AbstractFetcherThread (truncateToHighWatermark).
"""

from __future__ import annotations

import logging
from typing import Protocol

from broker.observability.limited_log import LimitedLog
from broker.replication.fetcher.fetch_state import FetchState
from broker.replication.fetcher.fetch_states import FetchStates
from broker.replication.fetcher.fetcher_control import FollowedPartition
from protocol.messages.fetch import PartitionData
from storage.batches import find_start_within_batch
from storage.errors import StorageError, is_descriptor_shortage

logger = logging.getLogger("barnabas.replication")

CHECKPOINT_WAIT_MS = 20  # between two checks whether a checkpoint was written, which takes two fsyncs


class FollowerEvents(Protocol):
    """Notified of what a fetcher does to the logs."""

    def on_appended(self, partition: FollowedPartition) -> None:
        """Records were appended; they may be due for a flush."""

    def on_waiting_for_disk(self, partition: FollowedPartition) -> None:
        """The partition is fetched again once its log is durable. Flush the log, then have `next_request` called."""

    def may_truncate(self, partition: FollowedPartition, offset: int) -> bool:
        """Whether the log may be truncated to `offset` now. If not, it is asked again after CHECKPOINT_WAIT_MS."""

    def on_truncated(self, partition: FollowedPartition) -> None:
        """The log was truncated."""

    def on_disk_failure(self, partition: FollowedPartition, error: StorageError) -> None:
        """The partition's disk failed."""


class FollowerLogs:
    """Owned by a LeaderFetcher. `now_ms` is monotonic, `wall_ms` the wall clock. `append`, `truncate` and `begin_at` raise StorageError
    when the disk fails."""

    __slots__ = ("_events", "_log", "_states")

    def __init__(self, states: FetchStates, events: FollowerEvents, log: LimitedLog) -> None:
        self._states = states
        self._events = events
        self._log = log

    def append(self, state: FetchState, data: PartitionData, now_ms: int, wall_ms: int) -> None:
        """Append what was fetched. Raises the KafkaErrors of Partition.append_as_follower."""
        partition = state.partition
        state.delays_count = 0
        records = data.records if isinstance(data.records, memoryview) else memoryview(data.records or b"")
        log = partition.log
        if log.log_end_offset == log.log_start_offset and not self._begin_with_batch(state, records, now_ms):
            return
        try:
            appended = partition.append_as_follower(
                records,
                leader_epoch=state.leader_epoch,
                fetch_offset=state.fetch_offset,
                leader_high_watermark=data.high_watermark,
                leader_log_start_offset=data.log_start_offset,
                now_ms=wall_ms,
            )
        except StorageError as failure:
            if not is_descriptor_shortage(failure):
                raise
            # The disk works and stays online. No newer metadata would bring the partition back, so it is fetched again later.
            self._states.update_fetch_offset(state)
            self._states.delay(state, now_ms)
            self._events.on_disk_failure(partition, failure)
            return
        state.leader_high_watermark = data.high_watermark
        self._states.changed[state.key] = None  # the log start offset that a Fetch names may have moved
        if appended.size_bytes:
            self._states.update_fetch_offset(state)
            self._events.on_appended(partition)

    def _begin_with_batch(self, state: FetchState, records: memoryview, now_ms: int) -> bool:
        """Move the start of an empty log back to the base offset of the leader's first batch. DeleteRecords may have set the leader's log
        start within that batch, which is copied whole. Returns whether `records` may be appended now; if not, a checkpoint has to be
        written first.

        The log's start then follows the leader's. Source: kafka.cluster.Partition.appendRecordsToFollowerOrFutureReplica."""
        log = state.partition.log
        base_offset = find_start_within_batch(log.log_end_offset, records)
        if base_offset is None:
            return True
        if not self._events.may_truncate(state.partition, base_offset):
            self._states.delay(state, now_ms, CHECKPOINT_WAIT_MS)
            return False
        logger.info("began with the batch at %d, which holds the log start %d of %r", base_offset, log.log_start_offset, state.partition)
        log.truncate_fully_and_start_at(base_offset)
        self._states.update_fetch_offset(state)
        return True

    def truncate(self, state: FetchState, offset: int, now_ms: int) -> None:
        """Truncate the log to `offset` and fetch from its new end. If it has to wait for a checkpoint, the offset is determined again
        later."""
        log = state.partition.log
        if not self._events.may_truncate(state.partition, offset):
            self._states.truncate_later(state)
            self._states.end_look_up(state)
            self._states.delay(state, now_ms, CHECKPOINT_WAIT_MS)
            return
        if offset < log.high_watermark:
            logger.warning("truncating %r to %d, below the high watermark %d", state.partition, offset, log.high_watermark)
        if log.truncate_to(offset):
            logger.info("truncated %r to %d in leader epoch %d", state.partition, log.log_end_offset, state.leader_epoch)
            self._events.on_truncated(state.partition)
        self._states.resume(state)

    def begin_at(self, state: FetchState, offset: int) -> None:
        """Drop the whole log and fetch from `offset`, where the leader's log starts."""
        logger.warning("%r begins anew at %d, where its leader's log starts", state.partition, offset)
        state.partition.log.truncate_fully_and_start_at(offset)
        self._events.on_truncated(state.partition)
        self._states.resume(state)

    def cut_to_high_watermarks(self, now_ms: int) -> None:
        """Truncate the logs without epochs to their high watermarks: the leader cannot find where they diverge from its own."""
        for state in self._states.take_truncating():
            try:
                self.truncate(state, state.fetch_offset, now_ms)
            except StorageError as failure:
                self.lose_disk(state, failure)

    # -- what is fetched no more -------------------------------------------------------------------------------------------

    def give_up(self, state: FetchState, why: str) -> None:
        """Fetch the partition no more. Newer metadata brings it back."""
        self._log.warning("fetcher gave up", "%r is fetched no more: %s", state.partition, why)
        self._states.forget(state.key)

    def lose_disk(self, state: FetchState, failure: StorageError) -> None:
        """As `give_up`, because the log's disk failed."""
        self.give_up(state, f"its disk failed: {failure}")
        self._events.on_disk_failure(state.partition, failure)
