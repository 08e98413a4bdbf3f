"""LookUps: what a fetcher does where its fetch offset is not in the leader's log: it asks by ListOffsets where that log ends and starts.

Source: kafka.server.AbstractFetcherThread.fetchOffsetAndTruncate, RemoteLeaderEndPoint.fetchLatestOffset.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from broker.replication.fetcher.fetch_state import FetchState, Phase
from broker.replication.fetcher.fetch_states import FetchStates
from broker.replication.fetcher.follower_logs import FollowerLogs
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from storage.errors import StorageError

logger = logging.getLogger("barnabas.replication")

LATEST_TIMESTAMP = -1
EARLIEST_LOCAL_TIMESTAMP = -4  # the first offset on the leader's disk: nothing before it can be fetched
EARLIEST_LOCAL_VERSION_MIN = 8
EARLIEST_TIMESTAMP = -2


class LookUps:
    """Owned by a LeaderFetcher, whose `states` and `logs` it shares."""

    __slots__ = ("_asked", "_logs", "_states")

    def __init__(self, states: FetchStates, logs: FollowerLogs) -> None:
        self._states = states
        self._logs = logs
        self._asked: dict[tuple[str, int], FetchState] = {}  # by the request that is under way

    def next_request(self, node_id: int, version: int) -> ListOffsetsRequest:
        """Returns a request for every partition that is out of range."""
        self._asked = {(state.partition.topic, state.partition.partition): state for state in self._states.out_of_range.values()}
        return list_offsets_of(self._asked.values(), node_id, version)

    def fail(self) -> None:
        """The request gets no answer."""
        self._asked = {}

    def take_answer(self, response: ListOffsetsResponse, now_ms: int) -> Iterator[None]:
        """Process an answer, one partition a step."""
        asked, self._asked = self._asked, {}
        answers = {(topic.name, found.partition_index): found for topic in response.topics for found in topic.partitions}
        for key, state in asked.items():
            if self._states.by_key.get(state.key) is not state:
                continue  # removed, or added again
            found = answers.get(key, ListOffsetsPartitionResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
            try:
                self._take_offset(state, found, now_ms)
            except StorageError as failure:
                self._logs.lose_disk(state, failure)
            except Exception:
                logger.exception("what was looked up for %r cannot be applied", state.partition)
                self._logs.give_up(state, "an unforeseen error")
            yield

    def _take_offset(self, state: FetchState, found: ListOffsetsPartitionResponse, now_ms: int) -> None:
        """Case A: the leader's log ends before ours: truncate ours there. Case B: it starts beyond the end of ours: drop ours and begin at
        its start.
        Case C: neither, because the leader's log has grown meanwhile: fetch again later."""
        log = state.partition.log
        if found.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self._logs.give_up(state, "the leader has a newer epoch, metadata will tell")
        elif found.error_code != ErrorCode.NONE:
            self._states.end_look_up(state)
            self._states.delay(state, now_ms)
        elif state.phase is Phase.LOOKING_UP_END:
            if found.offset < log.log_end_offset:
                self._logs.truncate(state, found.offset, now_ms)  # Case A
            else:
                state.phase = Phase.LOOKING_UP_START
        elif found.offset > log.log_end_offset:
            self._logs.begin_at(state, found.offset)  # Case B
        else:  # Case C. Kafka fetches again at once, without end if the leader does not know our last epoch.
            self._states.end_look_up(state)
            self._states.delay(state, now_ms)


def list_offsets_of(states: Iterable[FetchState], node_id: int, version: int) -> ListOffsetsRequest:
    """Asks where the leader's logs end, for states in LOOKING_UP_END, or start, for those in LOOKING_UP_START."""
    earliest = EARLIEST_LOCAL_TIMESTAMP if version >= EARLIEST_LOCAL_VERSION_MIN else EARLIEST_TIMESTAMP
    topics: dict[str, ListOffsetsTopic] = {}
    for state in states:
        name = state.partition.topic
        topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=state.partition.partition,
                current_leader_epoch=state.leader_epoch,
                timestamp=LATEST_TIMESTAMP if state.phase is Phase.LOOKING_UP_END else earliest,
            )
        )
    return ListOffsetsRequest(replica_id=node_id, topics=list(topics.values()))
