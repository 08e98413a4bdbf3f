"""LeaderSession: the follower's side of a fetch session (KIP-227). It decides which partitions the next Fetch has to name.

Source: org.apache.kafka.clients.FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping
from typing import NamedTuple

from broker.replication.fetcher.fetch_state import PartitionKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

NO_SESSION = 0
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1

SESSION_ERRORS = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR}
)


class SessionStep(NamedTuple):
    """The part of a Fetch that the session decides."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class LeaderSession:
    """`sent` holds, for each partition in the session, the entry of the last Fetch that named it. `epoch` is that of the next Fetch."""

    def __init__(self) -> None:
        self.sent: dict[PartitionKey, FetchPartition] = {}
        self._session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH

    @property
    def is_new(self) -> bool:
        """Whether the next request has to name all partitions."""
        return self.epoch == INITIAL_EPOCH

    def begin_anew(self) -> None:
        """The next request names all partitions, and ends the session that may still be at the leader."""
        self.epoch = INITIAL_EPOCH

    def next_step(self, changes: Mapping[PartitionKey, FetchPartition | None]) -> SessionStep:
        """Returns the session's part of the next Fetch. `changes` has the new entry of each partition that may have changed; None leaves
        a partition out. For a new session, `changes` has every partition."""
        sent = self.sent
        if self.is_new:
            self.sent = {key: asked for key, asked in changes.items() if asked is not None}
            return SessionStep(self._session_id, INITIAL_EPOCH, _by_topic(self.sent), [])
        named: dict[PartitionKey, FetchPartition] = {}
        forgotten: list[PartitionKey] = []
        for key, asked in changes.items():
            if asked is None:
                if sent.pop(key, None) is not None:
                    forgotten.append(key)
            elif not _is_same(asked, sent.get(key)):
                named[key] = sent[key] = asked
        return SessionStep(self._session_id, self.epoch, _by_topic(named), _forgotten(forgotten))

    def handle_response(self, response: FetchResponse, answered: KeysView[PartitionKey]) -> bool:
        """Whether the answer can be used. If not, the next request begins a new session."""
        error = response.error_code
        if error != ErrorCode.NONE:
            if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION
            self.begin_anew()
            return False
        # A full answer has every partition, any other only some of the session's.
        is_complete = answered == self.sent.keys() if self.is_new else answered <= self.sent.keys()
        if not is_complete:
            self.begin_anew()
            return False
        self._session_id = response.session_id
        if self._session_id == NO_SESSION:
            self.begin_anew()
        else:
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        return True


def is_session_error(request: FetchRequest, error_code: int) -> bool:
    """Whether a new session solves the problem at once, which it cannot if the request itself began one."""
    return error_code in SESSION_ERRORS and request.session_epoch != INITIAL_EPOCH


def _is_same(asked: FetchPartition, sent: FetchPartition | None) -> bool:
    """Whether both ask for the same. The other fields are the same in every Fetch of a session; to compare all takes 3 µs."""
    return (
        sent is not None
        and asked.fetch_offset == sent.fetch_offset
        and asked.log_start_offset == sent.log_start_offset
        and asked.current_leader_epoch == sent.current_leader_epoch
        and asked.last_fetched_epoch == sent.last_fetched_epoch
        and asked.partition_max_bytes == sent.partition_max_bytes
    )


def _by_topic(partitions: Mapping[PartitionKey, FetchPartition]) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for (topic_id, _), asked in partitions.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(asked)
    return list(topics.values())


def _forgotten(keys: Iterable[PartitionKey]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(index)
    return list(topics.values())
