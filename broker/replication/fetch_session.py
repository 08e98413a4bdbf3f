"""Fetch sessions (KIP-227): what a client fetches is remembered, so that it sends and gets only what changed.

A request carries a session id and an epoch: (any id, epoch 0) is a full fetch that closes that session and may begin one,
(any id, epoch -1) a full fetch without a session after it, (id, n > 0) an incremental one. The cache holds a fixed number of
sessions; when it is full, a new fetch goes without one, which every client copes with.

Owned by the Fetch handler. Source: kafka.server.FetchSession, org.apache.kafka.common.requests.FetchMetadata.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from broker.replication.fetch_data import FetchTarget, PartitionRead
from protocol.errors import ErrorCode

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
SESSION_ID_MAX = 2**31 - 1
EPOCH_MAX = 2**31 - 1
EVICTION_AGE_MS = 120_000  # min.incremental.fetch.session.eviction.ms in Kafka's code; not a property

PartitionKey = tuple[bytes | str, int]
"""The topic's id, or its name for clients before Fetch v13, and the partition index."""


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    """The session part of a response, and which of the reads go into it. The reads left out hold no records."""

    error_code: ErrorCode
    session_id: int
    reads: list[PartitionRead] = field(default_factory=list)


class FetchSession:
    """One client's partitions, in the order in which they are to be read next."""

    __slots__ = ("created_ms", "epoch", "is_privileged", "last_used_ms", "session_id", "targets", "uses_topic_ids")

    def __init__(
        self, session_id: int, targets: dict[PartitionKey, FetchTarget], *, uses_topic_ids: bool, is_privileged: bool, now_ms: int
    ) -> None:
        self.session_id = session_id
        self.targets = targets
        self.uses_topic_ids = uses_topic_ids
        self.is_privileged = is_privileged
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)

    def update(self, targets: Iterable[FetchTarget], forgotten: Iterable[PartitionKey]) -> None:
        """Add or change what a request asks for, then drop what it forgets."""
        for target in targets:
            key = _key(target)
            known = self.targets.get(key)
            if known is None:
                self.targets[key] = target
            else:
                known.ask_again(target)
        for key in forgotten:
            self.targets.pop(key, None)

    def select(self, reads: list[PartitionRead]) -> list[PartitionRead]:
        """The reads that tell the client something new. Partitions with records move to the end, so that each gets its turn."""
        selected: list[PartitionRead] = []
        for read in reads:
            target = read.target
            if not _is_news(read, target):
                continue
            selected.append(read)
            if len(read.records):
                key = _key(target)
                if self.targets.pop(key, None) is not None:
                    self.targets[key] = target
        return selected


class FetchContext:
    """How one request takes part in a session; here: not at all (full fetch with the final epoch)."""

    __slots__ = ("targets",)

    def __init__(self, targets: list[FetchTarget]) -> None:
        self.targets = targets

    def answer(self, reads: list[PartitionRead]) -> SessionAnswer:
        """What to send of `reads`; they are all the targets' reads, in any order. Called once, when the answer leaves."""
        return SessionAnswer(ErrorCode.NONE, NO_SESSION_ID, reads)


class FullFetchContext(FetchContext):
    """A full fetch that begins a session if the cache has room."""

    __slots__ = ("_cache", "_is_privileged", "_uses_topic_ids")

    def __init__(self, targets: list[FetchTarget], cache: FetchSessionCache, *, uses_topic_ids: bool, is_privileged: bool) -> None:
        super().__init__(targets)
        self._cache = cache
        self._uses_topic_ids = uses_topic_ids
        self._is_privileged = is_privileged

    def answer(self, reads: list[PartitionRead]) -> SessionAnswer:
        for read in reads:
            read.target.sent_high_watermark = read.high_watermark
            read.target.sent_log_start_offset = read.log_start_offset
        targets = {_key(read.target): read.target for read in reads}
        session_id = self._cache.maybe_create(targets, uses_topic_ids=self._uses_topic_ids, is_privileged=self._is_privileged)
        return SessionAnswer(ErrorCode.NONE, session_id, reads)


class IncrementalFetchContext(FetchContext):
    """A fetch within a session."""

    __slots__ = ("_epoch", "_session")

    def __init__(self, session: FetchSession) -> None:
        super().__init__(list(session.targets.values()))
        self._session = session
        self._epoch = session.epoch

    def answer(self, reads: list[PartitionRead]) -> SessionAnswer:
        """INVALID_FETCH_SESSION_EPOCH when a later request of the session came by while this one waited."""
        session = self._session
        if session.epoch != self._epoch:
            for read in reads:
                read.release()
            return SessionAnswer(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id)
        return SessionAnswer(ErrorCode.NONE, session.session_id, session.select(reads))


class FetchSessionCache:
    """All sessions of this broker, least recently used first. Times are monotonic milliseconds."""

    def __init__(self, slots_max: int, source: random.Random) -> None:
        self.slots_max = slots_max
        self.evicted_count = 0
        self._random = source
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._now_ms = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions_count(self) -> int:
        return sum(len(session.targets) for session in self._sessions.values())

    def find(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def new_context(
        self,
        session_id: int,
        epoch: int,
        targets: Iterable[FetchTarget],
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
        is_from_follower: bool,
        now_ms: int,
    ) -> FetchContext | ErrorCode:
        """The part this request has in a session, or the error that makes its client begin anew."""
        self._now_ms = now_ms
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH:
                return FetchContext(list(targets))
            return FullFetchContext(list(targets), self, uses_topic_ids=uses_topic_ids, is_privileged=is_from_follower)
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.update(targets, forgotten)
        if not session.targets:
            del self._sessions[session_id]
            return FetchContext([])
        session.last_used_ms = now_ms
        session.epoch = next_epoch(session.epoch)
        self._sessions.move_to_end(session_id)
        return IncrementalFetchContext(session)

    def maybe_create(self, targets: dict[PartitionKey, FetchTarget], *, uses_topic_ids: bool, is_privileged: bool) -> int:
        """A new session's id, or NO_SESSION_ID when the cache is full of sessions with a better right to their place."""
        if len(self._sessions) >= self.slots_max and not self._try_evict(is_privileged, len(targets)):
            return NO_SESSION_ID
        session_id = self._random.randint(1, SESSION_ID_MAX)
        while session_id in self._sessions:
            session_id = self._random.randint(1, SESSION_ID_MAX)
        self._sessions[session_id] = FetchSession(
            session_id, targets, uses_topic_ids=uses_topic_ids, is_privileged=is_privileged, now_ms=self._now_ms
        )
        return session_id

    def _try_evict(self, is_privileged: bool, size: int) -> bool:
        """Make room: by age of the last use, else the smallest session that the newcomer outranks (followers outrank consumers,
        more partitions outrank fewer). A session keeps its place for its first two minutes against its own rank."""
        if not self._sessions:
            return False
        stalest = next(iter(self._sessions.values()))
        if self._now_ms - stalest.last_used_ms > EVICTION_AGE_MS:
            return self._evict(stalest)
        evictable = [
            session
            for session in self._sessions.values()
            if self._now_ms - session.created_ms > EVICTION_AGE_MS or (is_privileged and not session.is_privileged)
        ]
        if not evictable:
            return False
        weakest = min(evictable, key=_rank)
        if (is_privileged, size, 0) < _rank(weakest):
            return False
        return self._evict(weakest)

    def _evict(self, session: FetchSession) -> bool:
        del self._sessions[session.session_id]
        self.evicted_count += 1
        return True


def next_epoch(epoch: int) -> int:
    """The epoch after this one; it wraps to 1, for 0 asks for a new session."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


def partition_key(topic: str | None, topic_id: bytes, partition: int) -> PartitionKey:
    return (topic_id, partition) if topic is None or any(topic_id) else (topic, partition)


def _key(target: FetchTarget) -> PartitionKey:
    return partition_key(target.topic, target.topic_id, target.partition)


def _rank(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_privileged, len(session.targets), session.session_id


def _is_news(read: PartitionRead, target: FetchTarget) -> bool:
    """Whether an incremental response must carry the partition; notes what is told of it."""
    is_news = len(read.records) > 0 or read.diverging_epoch is not None or read.error_code is not ErrorCode.NONE
    # With an error the watermark is -1: the partition is told of again once the error is over.
    if read.high_watermark != target.sent_high_watermark:
        target.sent_high_watermark = read.high_watermark
        is_news = True
    if read.log_start_offset != target.sent_log_start_offset:
        target.sent_log_start_offset = read.log_start_offset
        is_news = True
    return is_news
