"""The cache of all fetch sessions, and how each request takes part in one (KIP-227).

A request carries a session id and an epoch: (any id, epoch 0) is a full fetch that closes that session and may begin one,
(any id, epoch -1) a full fetch without a session after it, (id, n > 0) an incremental one. The cache holds a fixed number of
sessions, and of partitions in them; when it is full, a new fetch goes without one, which every client copes with.

A session whose connection has ended ends ABANDONED_AGE_MS after its last request. Kafka keeps it until another one needs its place.

Owned by the Fetch handler. Source: kafka.server.FetchManager, FetchContext and FetchSessionCache.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Generator, Iterable

from broker.loop.clock import Clock, Timer
from broker.loop.job import LoopJob
from broker.network.context import ConnectionFacts
from broker.replication.fetch.fetch_data import UNKNOWN_OFFSET, FetchIsolation, FetchTarget, PartitionRead
from broker.replication.fetch.fetch_session import INITIAL_EPOCH, FetchSession, PartitionKey, key_of, next_epoch
from protocol.errors import ErrorCode

NO_SESSION_ID = 0
FINAL_EPOCH = -1
SESSION_ID_MAX = 2**31 - 1
EVICTION_AGE_MS = 120_000  # min.incremental.fetch.session.eviction.ms in Kafka's code; not a property
ABANDONED_INTERVAL_MS = 5_000
CACHED_PARTITIONS_MAX = 50_000
"""Of all sessions together; each takes 0.6 KB. For more, sessions make room for one another by the rules of a full cache."""


class FetchContext:
    """How one request takes part in a session. This base class is for a request without a session (a full fetch with the final epoch).

    `targets` are those to look at; None means those that the request names. `watching` is the session, if there is one, that is notified
    of changes of the other targets. `session_id` and `error_code` are for the response and valid once `answer` was called."""

    __slots__ = ("error_code", "session_id", "targets", "watching")

    def __init__(self) -> None:
        self.targets: list[FetchTarget] | None = None
        self.watching: FetchSession | None = None
        self.session_id = NO_SESSION_ID
        self.error_code = ErrorCode.NONE

    def answer(self, reads: list[PartitionRead]) -> list[PartitionRead]:
        """Returns those of `reads`, the reads of all targets in any order, that are to be sent. The others hold no records. Called once,
        when the answer is sent."""
        return reads

    def answer_nothing(self) -> None:
        """Called in place of `answer` for a response that leaves empty because its client is throttled: what the session has sent stays
        as it was."""


WITHOUT_SESSION = FetchContext()


class FullFetchContext(FetchContext):
    """A full fetch that begins a session if the cache has room."""

    __slots__ = ("_cache", "_connection", "_is_privileged", "_uses_topic_ids")

    def __init__(
        self,
        cache: FetchSessionCache,
        connection: ConnectionFacts,
        *,
        uses_topic_ids: bool,
        is_privileged: bool,
    ) -> None:
        super().__init__()
        self._cache = cache
        self._connection = connection
        self._uses_topic_ids = uses_topic_ids
        self._is_privileged = is_privileged

    def answer(self, reads: list[PartitionRead]) -> list[PartitionRead]:
        self.session_id = self._cache.maybe_create(
            _targets_by_key(reads), self._connection, uses_topic_ids=self._uses_topic_ids, is_privileged=self._is_privileged
        )
        return reads


class IncrementalFetchContext(FetchContext):
    """A fetch within a session."""

    __slots__ = ("_epoch", "session")

    def __init__(self, session: FetchSession) -> None:
        self.targets = list(session.changed)
        self.watching = session if session.is_watching else None
        self.session_id = session.session_id
        self.error_code = ErrorCode.NONE
        self.session = session
        self._epoch = session.epoch

    def answer(self, reads: list[PartitionRead]) -> list[PartitionRead]:
        """Sets INVALID_FETCH_SESSION_EPOCH if a later request of the session arrived while this one waited."""
        session = self.session
        if session.epoch == self._epoch:
            selected = session.select(reads)
        else:
            self.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            selected = []
            for read in reads:
                read.release()
        session.close_if_ended()
        return selected

    def answer_nothing(self) -> None:
        if self.session.epoch != self._epoch:
            self.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        self.session.close_if_ended()


class FetchSessionCache:
    """All sessions of this broker, least recently used first. Times are monotonic milliseconds."""

    def __init__(self, slots_max: int, source: random.Random, clock: Clock) -> None:
        self.slots_max = slots_max
        self.evicted_count = 0
        self.partitions_count = 0
        self._random = source
        self._clock = clock
        self._abandoned_timer: Timer | None = None  # while there are sessions whose connections have ended
        self._ending = LoopJob(clock, self._end_abandoned)
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._now_ms = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def new_context(
        self,
        session_id: int,
        epoch: int,
        targets: list[FetchTarget],
        forgotten: Iterable[PartitionKey],
        connection: ConnectionFacts,
        *,
        uses_topic_ids: bool,
        is_privileged: bool,
        isolation: FetchIsolation,
        rights: object = None,
    ) -> FetchContext | ErrorCode:
        """Returns the request's context, which may hold an error that makes the client begin a new session. A follower's session
        `is_privileged`. `rights` is equal for requests whose clients may do the same."""
        now_ms = self._now_ms = self._clock.monotonic_ms()
        session = self._sessions.get(session_id)
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self._remove(session)
            if epoch == FINAL_EPOCH:
                return WITHOUT_SESSION
            return FullFetchContext(self, connection, uses_topic_ids=uses_topic_ids, is_privileged=is_privileged)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.update(targets, forgotten, isolation, now_ms, rights)
        if len(session.targets) != session.counted and not self._recount(session):
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if not session.targets:
            self._remove(session)
            return WITHOUT_SESSION  # the request is still answered, this once
        session.last_used_ms = now_ms
        if session.connection is not connection:
            session.connection = connection
            connection.on_closed = self._connection_closed
        session.epoch = next_epoch(session.epoch)
        self._sessions.move_to_end(session_id)
        return IncrementalFetchContext(session)

    def maybe_create(
        self, targets: dict[PartitionKey, FetchTarget], connection: ConnectionFacts, *, uses_topic_ids: bool, is_privileged: bool
    ) -> int:
        """Returns a new session's id, or NO_SESSION_ID when the cache is full of sessions that rank higher."""
        if not self._has_room(1, len(targets)) and not self._try_make_room(is_privileged, len(targets)):
            return NO_SESSION_ID
        session_id = self._random.randint(1, SESSION_ID_MAX)
        while session_id in self._sessions:
            session_id = self._random.randint(1, SESSION_ID_MAX)
        session = self._sessions[session_id] = FetchSession(
            session_id, targets, connection, uses_topic_ids=uses_topic_ids, is_privileged=is_privileged, now_ms=self._now_ms
        )
        self._recount(session)
        connection.on_closed = self._connection_closed
        if connection.is_closed:
            self._connection_closed()  # while the request went in turns
        return session_id

    def _has_room(self, sessions: int, partitions: int) -> bool:
        return len(self._sessions) + sessions <= self.slots_max and self.partitions_count + partitions <= CACHED_PARTITIONS_MAX

    def _recount(self, session: FetchSession) -> bool:
        """Count the session's targets again after they changed. Returns False if there is no room for them: the session has ended then,
        and its client begins a new one."""
        grown = len(session.targets) - session.counted
        session.counted += grown
        self.partitions_count += grown
        if grown > 0 and not self._has_room(0, 0):
            self._evict(session)
            return False
        return True

    def _try_make_room(self, is_privileged: bool, size: int) -> bool:
        """Evict the session that was used least recently, if that was two minutes ago; else the smallest sessions that the new one
        outranks. Followers outrank consumers, and more partitions outrank fewer. In its first two minutes a session is not evicted for
        one of its own rank."""
        while self._sessions and not self._has_room(1, size):
            stalest = next(iter(self._sessions.values()))
            if self._now_ms - stalest.last_used_ms <= EVICTION_AGE_MS:
                return self._try_evict_lesser(is_privileged, size)
            self._evict(stalest)
        return self._has_room(1, size)

    def _try_evict_lesser(self, is_privileged: bool, size: int) -> bool:
        """Evict as few sessions as are needed, or none if all of them would not be enough."""
        evictable = [
            session
            for session in self._sessions.values()
            if (self._now_ms - session.created_ms > EVICTION_AGE_MS or (is_privileged and not session.is_privileged))
            and _rank(session) < (is_privileged, size, 0)
        ]
        evictable.sort(key=_rank)
        chosen_partitions = 0
        for count, session in enumerate(evictable, 1):
            chosen_partitions += session.counted
            if self._has_room(1 - count, size - chosen_partitions):
                for chosen in evictable[:count]:
                    self._evict(chosen)
                return True
        return False

    def _connection_closed(self) -> None:
        if self._abandoned_timer is None:
            self._abandoned_timer = self._clock.call_later(ABANDONED_INTERVAL_MS, self._look_for_abandoned)

    def _look_for_abandoned(self) -> None:
        self._abandoned_timer = None
        if any(session.connection.is_closed for session in self._sessions.values()):
            self._connection_closed()
            self._ending.resume()

    def _end_abandoned(self) -> Generator[None, None, None]:
        """End the sessions whose clients are gone."""
        now_ms = self._clock.monotonic_ms()
        for session in list(self._sessions.values()):
            if session.is_abandoned(now_ms):
                self._remove(session)
                yield

    def _evict(self, session: FetchSession) -> None:
        self._remove(session)
        self.evicted_count += 1

    def _remove(self, session: FetchSession) -> None:
        """End the session, unless it has ended already."""
        if self._sessions.get(session.session_id) is session:
            del self._sessions[session.session_id]
            self.partitions_count -= session.counted
        session.close()


def _targets_by_key(reads: list[PartitionRead]) -> dict[PartitionKey, FetchTarget]:
    """Returns the targets by their keys, and records that the client knows what was read."""
    targets: dict[PartitionKey, FetchTarget] = {}
    for read in reads:
        target = read.target
        target.sent_high_watermark = read.high_watermark if read.diverging_epoch is None else UNKNOWN_OFFSET
        target.sent_log_start_offset = read.log_start_offset
        targets[key_of(target)] = target
    return targets


def _rank(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_privileged, len(session.targets), session.session_id
