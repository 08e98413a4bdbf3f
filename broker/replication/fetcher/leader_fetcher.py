"""LeaderFetcher: builds a follower's requests to one leader and acts on the answers. It sends nothing and has no clock.

The partitions of one fetcher share one Fetch at a time. The owner calls `next_request`, sends the request, and gives the answer to
`take_answer`. If there is no answer, it calls `handle_failure`. Then it calls `next_request` again. While a request is under way,
partitions may be removed, or added again in a new leader epoch. So a part of an answer counts only if its partition is still at the offset
and in the leader epoch that the request named.

Source: kafka.server.AbstractFetcherThread, ReplicaFetcherThread, RemoteLeaderEndPoint.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from broker.observability.limited_log import LimitedLog
from broker.replication.fetch.fetch_data import NO_EPOCH, NO_REPLICA
from broker.replication.fetcher.fetch_of_one import FetchOfOne, find_of_one
from broker.replication.fetcher.fetch_state import NOT_DELAYED, FetchState, PartitionKey, Phase
from broker.replication.fetcher.fetcher_control import FollowedPartition, InitialFetch
from broker.replication.fetcher.leader_session import LeaderSession, SessionStep, is_session_error
from broker.replication.fetcher.look_ups import list_offsets_of
from broker.replication.fetcher.truncation import find_truncation_offset
from broker.replication.quotas import ReplicationQuota
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData, ReplicaState
from protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse
from storage.batches import find_start_within_batch
from storage.errors import StorageError, is_descriptor_shortage

logger = logging.getLogger("barnabas.replication")

REPLICA_STATE_VERSION_MIN = 15
LEADER_WAIT_MS = 5  # before a leader that may soon be ready is asked again; doubles with each try
LEADER_WAIT_DOUBLINGS_MAX = 10
LEADER_UNAWARE = (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID)
THROTTLE_WAIT_MS = 100  # between two checks of a throttled partition
CHECKPOINT_WAIT_MS = 20  # between two checks whether a checkpoint was written, which takes two fsyncs
DISK_WAIT_MAX_MS = 5  # how long the leader may keep a fetch while other partitions wait for this broker's disk
ALL_TAKEN: Iterator[None] = iter(())


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """The replica.fetch.* properties."""

    node_id: int
    max_wait_ms: int
    min_bytes: int
    response_max_bytes: int
    partition_max_bytes: int
    backoff_ms: int


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


class LeaderFetcher:
    """See the module's docstring. Times are monotonic milliseconds."""

    def __init__(self, settings: FetcherSettings, events: FollowerEvents, quota: ReplicationQuota, log: LimitedLog) -> None:
        self._settings = settings
        self._quota = quota
        self._events = events
        self._log = log
        self._session = LeaderSession()
        self._states: dict[PartitionKey, FetchState] = {}
        self._changed: dict[PartitionKey, None] = {}  # those whose part of the session may be out of date
        self._delayed: dict[PartitionKey, FetchState] = {}
        self._waiting_for_disk: dict[PartitionKey, FetchState] = {}
        self._truncating: dict[PartitionKey, FetchState] = {}
        self._out_of_range: dict[PartitionKey, FetchState] = {}
        self._looked_up: dict[tuple[str, int], FetchState] = {}  # by the ListOffsets that is under way
        self._of_one: FetchOfOne | None = None

    def __len__(self) -> int:
        """How many partitions it fetches. Those that failed are not counted: newer metadata brings them back."""
        return len(self._states)

    def lags(self) -> Iterator[tuple[FollowedPartition, int]]:
        """How many records each partition is behind its leader's high watermark."""
        return ((state.partition, state.lag) for state in self._states.values())

    @property
    def wakes_at_ms(self) -> int | None:
        """When the first delay ends; None where nothing is delayed."""
        return min((state.delayed_until_ms for state in self._delayed.values()), default=None)

    def add(self, partition: FollowedPartition, start: InitialFetch) -> None:
        """Start to fetch the partition."""
        state = FetchState(partition, start)
        self._forget(state.key)
        self._states[state.key] = state
        if state.phase is Phase.TRUNCATING:
            self._truncating[state.key] = state

    def remove(self, partition: FollowedPartition) -> None:
        """Stop fetching the partition. Does nothing if it is not fetched here."""
        self.take(partition)

    def take(self, partition: FollowedPartition) -> FetchState | None:
        """As `remove`. Returns the partition's last state; None if it is not fetched here."""
        key = partition.topic_id, partition.partition
        state = self._states.get(key)
        if state is None or state.partition is not partition:
            return None
        self._forget(key)
        return state

    def _forget(self, key: PartitionKey) -> None:
        for partitions in (self._states, self._delayed, self._waiting_for_disk, self._truncating, self._out_of_range):
            partitions.pop(key, None)
        self._changed[key] = None

    # -- requests ------------------------------------------------------------------------------------------------------

    def next_request(self, *, fetch_version: int, list_offsets_version: int, broker_epoch: int, now_ms: int) -> (
        FetchRequest | ListOffsetsRequest | None
    ):  # fmt: skip
        """Returns the next request, in that version. None if there is nothing to ask until `wakes_at_ms`, or until partitions that wait
        for the disk are durable."""
        if self._delayed or self._waiting_for_disk:
            self._end_waits(now_ms)
        if self._truncating:
            self._cut_to_high_watermarks(now_ms)
        if self._quota.throttled:
            self._hold_back(now_ms)
        if self._looked_up:
            self._looked_up = {}
        if self._out_of_range:
            self._looked_up = {(state.partition.topic, state.partition.partition): state for state in self._out_of_range.values()}
            return list_offsets_of(self._looked_up.values(), self._settings.node_id, list_offsets_version)
        session = self._session
        last, changed = self._of_one, self._changed
        if last is not None and len(changed) == 1 and (key := last.state.key) in changed and self._states.get(key) is last.state:
            request = None if self._delayed or self._waiting_for_disk else last.fill_in(session, fetch_version, broker_epoch)
            if request is not None:
                changed.clear()
                return request
        keys = self._states if session.is_new else self._changed
        step = session.next_step({key: self._asked(key) for key in keys})
        self._changed.clear()
        if not session.sent and not step.forgotten:
            return None
        may_wait_long = not self._delayed and not self._waiting_for_disk
        max_wait_ms = self._settings.max_wait_ms if may_wait_long else self._max_wait_ms(now_ms)
        request = self._fetch(step, fetch_version, broker_epoch, max_wait_ms)
        self._of_one = find_of_one(request, step, self._states, fetch_version, broker_epoch) if may_wait_long else None
        return request

    def _max_wait_ms(self, now_ms: int) -> int:
        """Returns how long the leader may park the fetch: only until the first of the partitions that it leaves out is due."""
        wait_ms = self._settings.max_wait_ms
        if self._waiting_for_disk:
            wait_ms = min(wait_ms, DISK_WAIT_MAX_MS)
        if self._delayed:
            first_end_ms = min(state.delayed_until_ms for state in self._delayed.values())
            wait_ms = min(wait_ms, first_end_ms - now_ms)
        return wait_ms

    def _fetch(self, step: SessionStep, version: int, broker_epoch: int, max_wait_ms: int) -> FetchRequest:
        settings = self._settings
        has_state = version >= REPLICA_STATE_VERSION_MIN
        return FetchRequest(
            replica_id=NO_REPLICA if has_state else settings.node_id,
            replica_state=ReplicaState(replica_id=settings.node_id, replica_epoch=broker_epoch) if has_state else ReplicaState(),
            max_wait_ms=max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=step.session_id,
            session_epoch=step.epoch,
            topics=step.topics,
            forgotten_topics_data=step.forgotten,
        )

    def _asked(self, key: PartitionKey) -> FetchPartition | None:
        """Returns a Fetch's entry for a partition; None while the partition is left out."""
        state = self._states.get(key)
        if state is None or not state.is_ready:
            return None
        if state.waits_for_disk:
            if key not in self._waiting_for_disk:
                self._waiting_for_disk[key] = state
                self._events.on_waiting_for_disk(state.partition)
            return None
        return FetchPartition(
            partition=key[1],
            current_leader_epoch=state.leader_epoch,
            fetch_offset=state.fetch_offset,
            last_fetched_epoch=state.last_fetched_epoch,
            log_start_offset=state.partition.log.log_start_offset,
            partition_max_bytes=self._settings.partition_max_bytes,
        )

    def _end_waits(self, now_ms: int) -> None:
        for key, state in tuple(self._delayed.items()):
            if state.delayed_until_ms <= now_ms:
                state.delayed_until_ms = NOT_DELAYED
                del self._delayed[key]
                self._changed[key] = None
        for key, state in tuple(self._waiting_for_disk.items()):
            if not state.waits_for_disk:
                del self._waiting_for_disk[key]
                self._changed[key] = None

    def _hold_back(self, now_ms: int) -> None:
        """Leave out the throttled partitions while the bound is exceeded. Those in sync stay: a throttle must not drive them out of the
        ISR."""
        quota = self._quota
        if quota.is_exceeded:
            for state in self._states.values():
                if state.is_ready and not state.is_in_sync and quota.is_throttled(state.partition.topic, state.partition.partition):
                    self._delay(state, now_ms, THROTTLE_WAIT_MS)

    def _cut_to_high_watermarks(self, now_ms: int) -> None:
        """Truncate the logs without epochs to their high watermarks: the leader cannot find where they diverge from its own."""
        truncating, self._truncating = self._truncating, {}
        for key, state in truncating.items():
            if key not in self._states:
                continue  # removed when another one's disk failed
            try:
                self._truncate(state, state.fetch_offset, now_ms)
            except StorageError as failure:
                self._lose_disk(state, failure)

    def _delay(self, state: FetchState, now_ms: int, backoff_ms: int | None = None) -> None:
        """Leave it out for `backoff_ms`, by default replica.fetch.backoff.ms."""
        if state.delayed_until_ms == NOT_DELAYED:
            state.delayed_until_ms = now_ms + max(1, self._settings.backoff_ms if backoff_ms is None else backoff_ms)
            self._delayed[state.key] = state
            self._changed[state.key] = None

    def _wait_for_leader(self, state: FetchState, now_ms: int) -> None:
        """Ask again soon. The leader may read the metadata that elected it a few milliseconds later than this broker, or may just have
        been started. Producers that use acks=all wait for this fetch."""
        backoff_ms = LEADER_WAIT_MS << min(state.delays_count, LEADER_WAIT_DOUBLINGS_MAX)
        state.delays_count += 1
        self._delay(state, now_ms, min(backoff_ms, self._settings.backoff_ms))

    # -- answers -------------------------------------------------------------------------------------------------------

    def handle_failure(self, now_ms: int) -> None:
        """The request got no answer. Ask nothing for a while; the wait grows with each failure, up to replica.fetch.backoff.ms."""
        self.begin_anew()
        for state in tuple(self._states.values()):
            self._end_look_up(state)
            self._wait_for_leader(state, now_ms)

    def begin_anew(self) -> None:
        """Begin a new session, because a new connection may reach a leader that does not know the old one."""
        self._session.begin_anew()

    def take_answer(
        self, request: FetchRequest | ListOffsetsRequest, response: FetchResponse | ListOffsetsResponse, *, now_ms: int, wall_ms: int
    ) -> Iterator[None]:
        """Process an answer, one partition a step. The loop may serve others between two steps, and `add` and `remove` may be called
        there. An answer for a single partition, for which producers wait, is processed before this returns."""
        if isinstance(request, ListOffsetsRequest):
            assert isinstance(response, ListOffsetsResponse)
            return self._take_offsets(response, now_ms)
        assert isinstance(response, FetchResponse)
        parts = {(topic.topic_id, data.partition_index): data for topic in response.responses for data in topic.partitions}
        if self._quota.throttled:
            self._record_throttled(parts)
        sent = self._session.sent
        if not self._session.handle_response(response, parts.keys()):
            if response.error_code != ErrorCode.NONE and not is_session_error(request, response.error_code):
                self._log.warning("fetch refused", "Fetch refused error=%d partitions=%d", response.error_code, len(self._states))
                self.begin_anew()
                for each in tuple(self._states.values()):
                    self._delay(each, now_ms)
            return ALL_TAKEN
        if len(parts) == 1:
            ((key, data),) = parts.items()
            self._maybe_take_part(key, sent.get(key), data, now_ms, wall_ms)
            return ALL_TAKEN
        return self._take_parts(parts, sent, now_ms, wall_ms)

    def _take_parts(
        self, parts: Mapping[PartitionKey, PartitionData], sent: Mapping[PartitionKey, FetchPartition], now_ms: int, wall_ms: int
    ) -> Iterator[None]:
        for key, data in parts.items():
            self._maybe_take_part(key, sent.get(key), data, now_ms, wall_ms)
            yield

    def _maybe_take_part(self, key: PartitionKey, asked: FetchPartition | None, data: PartitionData, now_ms: int, wall_ms: int) -> None:
        state = self._states.get(key)
        if (
            state is not None
            and asked is not None
            and state.is_ready
            and asked.fetch_offset == state.fetch_offset
            and asked.current_leader_epoch == state.leader_epoch
        ):
            self._take_part(state, data, now_ms, wall_ms)

    def _record_throttled(self, parts: Mapping[PartitionKey, PartitionData]) -> None:
        """Count the bytes of throttled partitions, including those in sync."""
        quota = self._quota
        size_bytes = 0
        for key, data in parts.items():
            state = self._states.get(key)
            if data.records and state is not None and quota.is_throttled(state.partition.topic, key[1]):
                size_bytes += len(data.records)
        quota.record(size_bytes)

    def _take_part(self, state: FetchState, data: PartitionData, now_ms: int, wall_ms: int) -> None:
        error = data.error_code
        try:
            if error == ErrorCode.NONE:
                if data.diverging_epoch.epoch >= 0:
                    # The rest of this answer is ignored: our log has to become a prefix of the leader's first. A new session begins,
                    # because in the old one Kafka's leader would not repeat the high watermark of this answer.
                    self._session.begin_anew()
                    self._truncate(state, find_truncation_offset(state.partition.log, data.diverging_epoch), now_ms)
                else:
                    self._append(state, data, now_ms, wall_ms)
            elif error == ErrorCode.OFFSET_OUT_OF_RANGE:
                state.phase = Phase.LOOKING_UP_END
                self._out_of_range[state.key] = state
                self._changed[state.key] = None
            elif error == ErrorCode.FENCED_LEADER_EPOCH:
                self._fail(state, "the leader has a newer epoch, metadata will tell")
            elif error in LEADER_UNAWARE:
                self._wait_for_leader(state, now_ms)
            else:
                self._log.info("fetch error", "fetch of %r failed error=%d", state.partition, error)
                self._delay(state, now_ms)
        except KafkaError as refusal:
            # The batch is malformed, or newer metadata came before the answer. The next fetch may succeed.
            self._log.error("append refused", "what was fetched of %r cannot be appended: %s", state.partition, refusal)
            self._delay(state, now_ms)
        except StorageError as failure:
            self._lose_disk(state, failure)
        except Exception:
            logger.exception("what was fetched of %r cannot be appended", state.partition)
            self._fail(state, "an unforeseen error")

    def _append(self, state: FetchState, data: PartitionData, now_ms: int, wall_ms: int) -> None:
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
            self._update_fetch_offset(state)
            self._delay(state, now_ms)
            self._events.on_disk_failure(partition, failure)
            return
        state.leader_high_watermark = data.high_watermark
        self._changed[state.key] = None  # the log start offset that a Fetch names may have moved
        if appended.size_bytes:
            self._update_fetch_offset(state)
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
            self._delay(state, now_ms, CHECKPOINT_WAIT_MS)
            return False
        logger.info("began with the batch at %d, which holds the log start %d of %r", base_offset, log.log_start_offset, state.partition)
        log.truncate_fully_and_start_at(base_offset)
        self._update_fetch_offset(state)
        return True

    def _update_fetch_offset(self, state: FetchState) -> None:
        log = state.partition.log
        latest_epoch = log.leader_epochs.latest_epoch
        state.fetch_offset = log.log_end_offset
        state.last_fetched_epoch = NO_EPOCH if latest_epoch is None else latest_epoch
        self._changed[state.key] = None

    def _truncate(self, state: FetchState, offset: int, now_ms: int) -> None:
        """Truncate the log to `offset` and fetch from its new end. If it has to wait for a checkpoint, the offset is determined again
        later. StorageError when the disk fails."""
        log = state.partition.log
        if not self._events.may_truncate(state.partition, offset):
            if state.phase is Phase.TRUNCATING:
                self._truncating[state.key] = state
            self._end_look_up(state)
            self._delay(state, now_ms, CHECKPOINT_WAIT_MS)
            return
        if offset < log.high_watermark:
            logger.warning("truncating %r to %d, below the high watermark %d", state.partition, offset, log.high_watermark)
        if log.truncate_to(offset):
            logger.info("truncated %r to %d in leader epoch %d", state.partition, log.log_end_offset, state.leader_epoch)
            self._events.on_truncated(state.partition)
        self._resume(state)

    def _resume(self, state: FetchState) -> None:
        """Fetch from the log's end."""
        self._out_of_range.pop(state.key, None)
        state.phase = Phase.FETCHING
        self._update_fetch_offset(state)

    def _fail(self, state: FetchState, why: str) -> None:
        self._log.warning("fetcher gave up", "%r is fetched no more: %s", state.partition, why)
        self._forget(state.key)

    def _lose_disk(self, state: FetchState, failure: StorageError) -> None:
        self._fail(state, f"its disk failed: {failure}")
        self._events.on_disk_failure(state.partition, failure)

    # -- out of range --------------------------------------------------------------------------------------------------

    def _take_offsets(self, response: ListOffsetsResponse, now_ms: int) -> Iterator[None]:
        asked, self._looked_up = self._looked_up, {}
        answers = {(topic.name, found.partition_index): found for topic in response.topics for found in topic.partitions}
        for key, state in asked.items():
            if self._states.get(state.key) is not state:
                continue  # removed, or added again
            found = answers.get(key, ListOffsetsPartitionResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
            try:
                self._take_offset(state, found, now_ms)
            except StorageError as failure:
                self._lose_disk(state, failure)
            except Exception:
                logger.exception("what was looked up for %r cannot be applied", state.partition)
                self._fail(state, "an unforeseen error")
            yield

    def _take_offset(self, state: FetchState, found: ListOffsetsPartitionResponse, now_ms: int) -> None:
        """Case A: the leader's log ends before ours: truncate ours there. Case B: it starts beyond the end of ours: drop ours and begin at
        its start.
        Case C: neither, because the leader's log has grown meanwhile: fetch again later."""
        log = state.partition.log
        if found.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self._fail(state, "the leader has a newer epoch, metadata will tell")
        elif found.error_code != ErrorCode.NONE:
            self._end_look_up(state)
            self._delay(state, now_ms)
        elif state.phase is Phase.LOOKING_UP_END:
            if found.offset < log.log_end_offset:
                self._truncate(state, found.offset, now_ms)  # Case A
            else:
                state.phase = Phase.LOOKING_UP_START
        elif found.offset > log.log_end_offset:  # Case B
            logger.warning("%r begins anew at %d, where its leader's log starts", state.partition, found.offset)
            log.truncate_fully_and_start_at(found.offset)
            self._events.on_truncated(state.partition)
            self._resume(state)
        else:
            self._end_look_up(state)
            self._delay(state, now_ms)  # Case C. Kafka fetches again at once, without end if the leader does not know our last epoch.

    def _end_look_up(self, state: FetchState) -> None:
        if self._out_of_range.pop(state.key, None) is not None:
            self._resume(state)
