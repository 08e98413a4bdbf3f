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

from broker.observability.limited_log import LimitedLog
from broker.replication.fetch.fetch_data import NO_REPLICA
from broker.replication.fetcher.fetch_of_one import FetchOfOne, find_of_one
from broker.replication.fetcher.fetch_state import FetchState, PartitionKey
from broker.replication.fetcher.fetch_states import FetchStates
from broker.replication.fetcher.fetcher_control import FollowedPartition, InitialFetch
from broker.replication.fetcher.follower_logs import FollowerEvents, FollowerLogs
from broker.replication.fetcher.leader_session import LeaderSession, SessionStep, is_session_error
from broker.replication.fetcher.look_ups import LookUps
from broker.replication.fetcher.truncation import find_truncation_offset
from broker.replication.quotas import ReplicationQuota
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData, ReplicaState
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from storage.errors import StorageError

logger = logging.getLogger("barnabas.replication")

REPLICA_STATE_VERSION_MIN = 15
LEADER_UNAWARE = (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID)
THROTTLE_WAIT_MS = 100  # between two checks of a throttled partition
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


class LeaderFetcher:
    """See the module's docstring. Times are monotonic milliseconds."""

    def __init__(self, settings: FetcherSettings, events: FollowerEvents, quota: ReplicationQuota, log: LimitedLog) -> None:
        self._settings = settings
        self._quota = quota
        self._events = events
        self._log = log
        self._session = LeaderSession()
        self._states = FetchStates(settings.backoff_ms)
        self._logs = FollowerLogs(self._states, events, log)
        self._look_ups = LookUps(self._states, self._logs)
        self._of_one: FetchOfOne | None = None

    def __len__(self) -> int:
        """How many partitions it fetches. Those that failed are not counted: newer metadata brings them back."""
        return len(self._states)

    def lags(self) -> Iterator[tuple[FollowedPartition, int]]:
        """How many records each partition is behind its leader's high watermark."""
        return ((state.partition, state.lag) for state in self._states.by_key.values())

    @property
    def wakes_at_ms(self) -> int | None:
        """When the first delay ends; None where nothing is delayed."""
        return self._states.wakes_at_ms

    def add(self, partition: FollowedPartition, start: InitialFetch) -> None:
        """Start to fetch the partition."""
        self._states.add(partition, start)

    def remove(self, partition: FollowedPartition) -> None:
        """Stop fetching the partition. Does nothing if it is not fetched here."""
        self._states.take(partition)

    def take(self, partition: FollowedPartition) -> FetchState | None:
        """As `remove`. Returns the partition's last state; None if it is not fetched here."""
        return self._states.take(partition)

    # -- requests ------------------------------------------------------------------------------------------------------

    def next_request(self, *, fetch_version: int, list_offsets_version: int, broker_epoch: int, now_ms: int) -> (
        FetchRequest | ListOffsetsRequest | None
    ):  # fmt: skip
        """Returns the next request, in that version. None if there is nothing to ask until `wakes_at_ms`, or until partitions that wait
        for the disk are durable."""
        states = self._states
        if states.delayed or states.waiting_for_disk:
            states.end_waits(now_ms)
        if states.truncating:
            self._logs.cut_to_high_watermarks(now_ms)
        if self._quota.throttled:
            self._hold_back(now_ms)
        if states.out_of_range:
            return self._look_ups.next_request(self._settings.node_id, list_offsets_version)
        session, changed = self._session, states.changed
        may_wait_long = not states.delayed and not states.waiting_for_disk
        last = self._of_one
        if last is not None and len(changed) == 1 and (key := last.state.key) in changed and states.by_key.get(key) is last.state:
            request = last.fill_in(session, fetch_version, broker_epoch) if may_wait_long else None
            if request is not None:
                changed.clear()
                return request
        step = session.next_step({key: self._asked(key) for key in (states.by_key if session.is_new else changed)})
        changed.clear()
        if not session.sent and not step.forgotten:
            return None
        may_wait_long = not states.delayed and not states.waiting_for_disk
        max_wait_ms = self._settings.max_wait_ms if may_wait_long else self._max_wait_ms(now_ms)
        request = self._fetch(step, fetch_version, broker_epoch, max_wait_ms)
        self._of_one = find_of_one(request, step, states.by_key, fetch_version, broker_epoch) if may_wait_long else None
        return request

    def _max_wait_ms(self, now_ms: int) -> int:
        """Returns how long the leader may park the fetch: only until the first of the partitions that it leaves out is due."""
        wait_ms = self._settings.max_wait_ms
        if self._states.waiting_for_disk:
            wait_ms = min(wait_ms, DISK_WAIT_MAX_MS)
        wakes_at_ms = self._states.wakes_at_ms
        return wait_ms if wakes_at_ms is None else min(wait_ms, wakes_at_ms - now_ms)

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
        state = self._states.by_key.get(key)
        if state is None or not state.is_ready:
            return None
        if state.waits_for_disk:
            if self._states.wait_for_disk(state):
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

    def _hold_back(self, now_ms: int) -> None:
        """Leave out the throttled partitions while the bound is exceeded. Those in sync stay: a throttle must not drive them out of the
        ISR."""
        quota = self._quota
        if quota.is_exceeded:
            for state in self._states.by_key.values():
                if state.is_ready and not state.is_in_sync and quota.is_throttled(state.partition.topic, state.partition.partition):
                    self._states.delay(state, now_ms, THROTTLE_WAIT_MS)

    # -- answers -------------------------------------------------------------------------------------------------------

    def handle_failure(self, now_ms: int) -> None:
        """The request got no answer. Ask nothing for a while; the wait grows with each failure, up to replica.fetch.backoff.ms."""
        self.begin_anew()
        self._look_ups.fail()
        for state in tuple(self._states.by_key.values()):
            self._states.end_look_up(state)
            self._states.wait_for_leader(state, now_ms)

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
            return self._look_ups.take_answer(response, now_ms)
        assert isinstance(response, FetchResponse)
        parts = {(topic.topic_id, data.partition_index): data for topic in response.responses for data in topic.partitions}
        if self._quota.throttled:
            self._record_throttled(parts)
        sent = self._session.sent
        if not self._session.handle_response(response, parts.keys()):
            if response.error_code != ErrorCode.NONE and not is_session_error(request, response.error_code):
                self._log.warning("fetch refused", "Fetch refused error=%d partitions=%d", response.error_code, len(self._states))
                self.begin_anew()
                for each in tuple(self._states.by_key.values()):
                    self._states.delay(each, now_ms)
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
        state = self._states.by_key.get(key)
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
            state = self._states.by_key.get(key)
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
                    self._logs.truncate(state, find_truncation_offset(state.partition.log, data.diverging_epoch), now_ms)
                else:
                    self._logs.append(state, data, now_ms, wall_ms)
            elif error == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._states.begin_look_up(state)
            elif error == ErrorCode.FENCED_LEADER_EPOCH:
                self._logs.give_up(state, "the leader has a newer epoch, metadata will tell")
            elif error in LEADER_UNAWARE:
                self._states.wait_for_leader(state, now_ms)
            else:
                self._log.info("fetch error", "fetch of %r failed error=%d", state.partition, error)
                self._states.delay(state, now_ms)
        except KafkaError as refusal:
            # The batch is malformed, or newer metadata came before the answer. The next fetch may succeed.
            self._log.error("append refused", "what was fetched of %r cannot be appended: %s", state.partition, refusal)
            self._states.delay(state, now_ms)
        except StorageError as failure:
            self._logs.lose_disk(state, failure)
        except Exception:
            logger.exception("what was fetched of %r cannot be appended", state.partition)
            self._logs.give_up(state, "an unforeseen error")
