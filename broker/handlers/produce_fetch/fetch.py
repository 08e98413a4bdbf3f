"""Fetch: read record batches from partitions, waiting for them if asked to.

Serves v4–v18.

Behaviour:
- Sessions (KIP-227) and long polling: answered at once when min_bytes are there or there is an error or divergence to tell, else
  when that happens or max_wait_ms are over. max_wait_ms is clamped to MAX_WAIT_MS_LIMIT.
- Partitions are read in the request's order. The first non-empty one gives its first batch whatever the limits say (KIP-74);
  max_bytes is clamped to fetch.max.bytes. Whole batches only: the first may begin before the offset asked for.
- READ_COMMITTED stops at the last stable offset and lists aborted transactions ([] for none); otherwise the list is null. An isolation
  level that does not exist is UNKNOWN_SERVER_ERROR, as in Kafka.
- A full response has every partition asked for, once; one named twice is read as it is named last.
- Many partitions are read in turns, each as it is when its turn comes; a request that waits for many is read in turns at its end.
- Replicas: an id that is not in the partition's replica set is refused, so on a single node every one is.

Version notes: v7 sessions. v9 leader epochs are checked unless they are negative (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH; KIP-320).
v10 tells that zstd is known; records are sent as they are. v11 consumers may fetch from followers, and a leader sends them to one in their
rack where replica.selector.class says so (KIP-392). v12 divergence by last_fetched_epoch. v13 topic ids: UNKNOWN_TOPIC_ID,
INCONSISTENT_TOPIC_ID (KIP-516). v15 replica_state in place of replica_id. v16 the current leader and its endpoint (KIP-951).
v17 and v18 add what replicas of the metadata log alone tell: their directory and the high watermark that they know.

Not done: client quotas, authorisation (a replica needs CLUSTER_ACTION once there are others; CVE-2018-1288).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

from broker.handlers.produce_fetch.fetch_answers import FetchAnswers
from broker.handlers.services import Handler, Services
from broker.loop.cold_reads import try_again_when_read
from broker.loop.deferred import Deferred
from broker.loop.pieces import Pace
from broker.loop.turns import Work, at_once_or_in_turns, is_many, make_in_turns
from broker.network.context import RequestContext
from broker.replication.fetch.delayed_fetch import TARGETS_AT_ONCE, DelayedFetch
from broker.replication.fetch.fetch_data import (
    NO_EPOCH,
    FetchIsolation,
    FetchParams,
    FetchTarget,
    PartitionRead,
    RackFetchParams,
    ThrottledFetchParams,
)
from broker.replication.fetch.fetch_session import PartitionKey, partition_key
from broker.replication.fetch.fetch_session_cache import FetchContext, FetchSessionCache
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.templates import (
    PreparedResponse,
)
from storage.file_slice import FileSlice
from storage.page_cache import ColdRead

PARTITIONS_AT_ONCE = TARGETS_AT_ONCE
PARTITIONS_PER_PIECE = 64
MAX_WAIT_MS_LIMIT = 300_000  # half of connections.max.idle.ms: a longer poll would end with the connection
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
FUTURE_LOCAL_REPLICA_ID = -3
FOLLOWER_READS_VERSION_MIN = 11
TOPIC_IDS_VERSION_MIN = 13
REPLICA_STATE_VERSION_MIN = 15


def build(services: Services) -> Handler:
    return FetchHandler(services).handle


class FetchHandler:
    """Owns the fetch sessions."""

    def __init__(self, services: Services) -> None:
        self._reader = services.replica_manager.reader
        self._selects_replicas = self._reader.selector is not None
        self._purgatory = services.replica_manager.fetch_purgatory
        self._awaited_followers = services.replica_manager.awaited_followers
        self._metadata = services.metadata
        self._clock = services.clock
        self._run_blocking = services.run_blocking
        self._quota = services.replica_manager.quotas.leader
        answers = FetchAnswers(services.metadata, services.metrics, self._quota)
        self._respond = answers.respond
        self._add_reads = answers.add_reads
        self._max_bytes = services.config.fetch_max_bytes
        self.sessions = FetchSessionCache(services.config.max_incremental_fetch_session_cache_slots, services.random, services.clock)

    def handle(self, context: RequestContext, request: FetchRequest) -> FetchResponse | PreparedResponse | Deferred | Work:
        version, listener_name = context.api_version, context.connection.listener.name
        replica_id = request.replica_id if version < REPLICA_STATE_VERSION_MIN else request.replica_state.replica_id
        uses_topic_ids = version >= TOPIC_IDS_VERSION_MIN
        isolation = _isolation(request, replica_id)
        named_count = len(request.forgotten_topics_data)
        for topic in request.topics:
            named_count += 1 + len(topic.partitions)
            if named_count > PARTITIONS_AT_ONCE:
                break
        if named_count > PARTITIONS_AT_ONCE or (request.forgotten_topics_data and _forgets_many(request)):
            return self._handle_in_turns(context, request, replica_id, uses_topic_ids)
        session = self.sessions.new_context(
            request.session_id,
            request.session_epoch,
            self._targets(request, uses_topic_ids),
            _forgotten(request, uses_topic_ids) if request.forgotten_topics_data else (),
            context.connection,
            uses_topic_ids=uses_topic_ids,
            isolation=isolation,
            is_from_follower=replica_id >= 0,
            now_ms=self._clock.monotonic_ms(),
        )
        if isinstance(session, ErrorCode):
            return FetchResponse(error_code=session)
        if replica_id >= 0:
            session.is_from_follower = context.connection.sends_at_once = True  # producers wait for what the follower asks next
        if len(session.targets) > PARTITIONS_AT_ONCE:
            return self._fetch_in_turns(
                session, self._params(request, replica_id, isolation, version, listener_name), version, listener_name
            )
        readable, unknown = self._split_targets(session.targets)
        if session.watching is not None:
            for read in unknown:
                session.watching.unwatch(read.target)
        if not readable and not session.has_quiet_partitions:
            return self._respond(session, unknown, version, listener_name)
        params = self._params(request, replica_id, isolation, version, listener_name)
        try:
            return self._fetch(params, session, readable, unknown, version, listener_name, self._run_blocking is None)
        except ColdRead as cold:
            assert self._run_blocking is not None

            def attempt(may_wait_for_disk: bool) -> FetchResponse | PreparedResponse | Deferred:
                return self._fetch(params, session, readable, unknown, version, listener_name, may_wait_for_disk)

            return try_again_when_read(cold, attempt, self._run_blocking)

    def _fetch(
        self,
        params: FetchParams,
        session: FetchContext,
        readable: list[FetchTarget],
        unknown: list[PartitionRead],
        version: int,
        listener_name: str,
        may_wait_for_disk: bool,
    ) -> FetchResponse | PreparedResponse | Deferred:
        outcome = self._reader.fetch_now(params, readable, session.watching, may_wait_for_disk=may_wait_for_disk)
        if not isinstance(outcome, DelayedFetch):
            return self._respond(session, outcome + unknown if unknown else outcome, version, listener_name)
        deferred = Deferred()

        def answer(reads: list[PartitionRead]) -> None:
            deferred.resolve(self._respond, session, reads + unknown if unknown else reads, version, listener_name)

        if outcome.session is not None:  # else they are the request's, which are few
            outcome.on_many = lambda targets: deferred.complete(
                self._answer_in_turns(params, session, targets, unknown, version, listener_name)
            )
        operation = self._reader.park_fetch(outcome, answer)
        if operation is not None:
            deferred.on_abandon = lambda: self._purgatory.cancel(operation)
        return deferred

    def _params(self, request: FetchRequest, replica_id: int, isolation: FetchIsolation, version: int, listener_name: str) -> FetchParams:
        max_bytes = max(0, min(request.max_bytes, self._max_bytes))
        max_wait_ms = min(request.max_wait_ms, MAX_WAIT_MS_LIMIT)
        if replica_id >= 0 and self._awaited_followers.by_follower:
            max_wait_ms = self._awaited_followers.bound_wait(replica_id, max_wait_ms)
        params = FetchParams(
            replica_id=replica_id,
            replica_epoch=request.replica_state.replica_epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min(request.min_bytes, max_bytes),
            max_bytes=max_bytes,
            isolation=isolation,
            fetch_only_leader=replica_id >= 0 or version < FOLLOWER_READS_VERSION_MIN,
        )
        if request.rack_id and self._selects_replicas and replica_id < 0:
            return RackFetchParams(params, request.rack_id, listener_name)
        if replica_id >= 0 and self._quota.throttled:
            return ThrottledFetchParams(params, self._quota)
        return params

    # -- very many partitions, in turns -------------------------------------------------------------------------------

    def _handle_in_turns(self, context: RequestContext, request: FetchRequest, replica_id: int, uses_topic_ids: bool) -> Work:
        """As `handle`, for a request that names many."""
        isolation = _isolation(request, replica_id)
        targets = yield from self._targets_in_turns(request, uses_topic_ids)
        forgotten: list[PartitionKey] = []
        keys = _forgotten(request, uses_topic_ids)
        while piece := list(islice(keys, PARTITIONS_PER_PIECE)):
            forgotten += piece
            yield
        session = yield from self.sessions.new_context_in_turns(
            request.session_id,
            request.session_epoch,
            targets,
            forgotten,
            context.connection,
            uses_topic_ids=uses_topic_ids,
            isolation=isolation,
            is_from_follower=replica_id >= 0,
            now_ms=self._clock.monotonic_ms(),
        )
        if isinstance(session, ErrorCode):
            return FetchResponse(error_code=session)
        session.is_from_follower = replica_id >= 0
        params = self._params(request, replica_id, isolation, context.api_version, context.connection.listener.name)
        return (yield from self._fetch_in_turns(session, params, context.api_version, context.connection.listener.name))

    def _fetch_in_turns(self, session: FetchContext, params: FetchParams, version: int, listener_name: str) -> Work:
        """What `handle` does once the session is known, for many targets."""
        watching = session.watching
        try:
            readable, unknown = yield from self._split_targets_in_turns(session)
            if not readable and not session.has_quiet_partitions:
                return (yield from self._respond_in_turns(session, unknown, version, listener_name))
            outcome = yield from self._reader.fetch_in_turns(params, readable, watching, self._run_blocking)
            if not isinstance(outcome, DelayedFetch):
                outcome += unknown
                readable.clear()  # what is in them goes with the session's list and the reads, in turns
                unknown.clear()
                return (yield from self._respond_in_turns(session, outcome, version, listener_name))
            operation, deferred = outcome, Deferred()

            def answer(reads: list[PartitionRead]) -> None:
                deferred.complete(self._respond_in_turns(session, reads + unknown, version, listener_name))

            def read_many(targets: list[FetchTarget]) -> None:
                deferred.complete(self._answer_in_turns(params, session, targets, unknown, version, listener_name))

            deferred.on_abandon = lambda: self._purgatory.cancel(operation)
            yield from self._reader.park_in_turns(operation, answer, read_many)
            return deferred
        finally:
            if watching is not None:
                watching.close_if_ended()

    def _answer_in_turns(
        self,
        params: FetchParams,
        session: FetchContext,
        targets: list[FetchTarget],
        unknown: list[PartitionRead],
        version: int,
        listener_name: str,
    ) -> Work:
        """The end of a wait for many: read them once more."""
        reads = yield from self._reader.read_all_in_turns(params, targets, self._run_blocking)
        return (yield from self._respond_in_turns(session, reads + unknown, version, listener_name))

    def _respond_in_turns(
        self, session: FetchContext, reads: list[PartitionRead], version: int, listener_name: str
    ) -> Generator[None, None, FetchResponse]:
        response = FetchResponse()
        try:
            answer = yield from session.answer_in_turns(reads)
            response.error_code, response.session_id = answer.error_code, answer.session_id
            for start in range(0, len(answer.reads), PARTITIONS_PER_PIECE):
                self._add_reads(response, answer.reads[start : start + PARTITIONS_PER_PIECE], session, version, listener_name)
                yield
        except BaseException:
            for records in (
                *(read.records for read in reads),
                *(partition.records for topic in response.responses for partition in topic.partitions),
            ):
                if isinstance(records, FileSlice):
                    records.release()
            raise
        return response

    def _targets_in_turns(self, request: FetchRequest, uses_topic_ids: bool) -> Generator[None, None, list[FetchTarget]]:
        """As `_targets`. The list is filled as its elements are made: the collector looks at a young list whole, however long it is."""
        asked: list[FetchTarget] = []
        places: dict[PartitionKey, int] = {}
        for topic in request.topics:
            for start in range(0, len(topic.partitions), PARTITIONS_PER_PIECE):
                partitions = topic.partitions[start : start + PARTITIONS_PER_PIECE]
                piece: dict[PartitionKey, FetchTarget] = {}
                self._add_targets(piece, FetchTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions), uses_topic_ids)
                for key, target in piece.items():
                    place = places.setdefault(key, len(asked))
                    if place == len(asked):
                        asked.append(target)
                    else:
                        asked[place] = target
                yield
        return asked

    def _split_targets_in_turns(self, session: FetchContext) -> Generator[None, None, tuple[list[FetchTarget], list[PartitionRead]]]:
        readable: list[FetchTarget] = []
        unknown: list[PartitionRead] = []
        for start in range(0, len(session.targets), PARTITIONS_PER_PIECE):
            known, missing = self._split_targets(session.targets[start : start + PARTITIONS_PER_PIECE])
            readable += known
            unknown += missing
            if session.watching is not None:
                for read in missing:
                    session.watching.unwatch(read.target)
            yield
        return readable, unknown

    # -- the request ---------------------------------------------------------------------------------------------------

    def _targets(self, request: FetchRequest, uses_topic_ids: bool) -> list[FetchTarget]:
        """What the request asks for, each partition once: in the first one's place with the last one's offset."""
        targets: dict[PartitionKey, FetchTarget] = {}
        for topic in request.topics:
            self._add_targets(targets, topic, uses_topic_ids)
        return list(targets.values())

    def _add_targets(self, targets: dict[PartitionKey, FetchTarget], topic: FetchTopic, uses_topic_ids: bool) -> None:
        topic_id = topic.topic_id
        name = self._find_name(topic_id) if uses_topic_ids else topic.topic
        topic_key = topic_id if uses_topic_ids else topic.topic
        for asked in topic.partitions:
            targets[topic_key, asked.partition] = FetchTarget(
                name,
                asked.partition,
                asked.fetch_offset,
                size if (size := asked.partition_max_bytes) > 0 else 0,
                topic_id,
                epoch if (epoch := asked.current_leader_epoch) >= 0 else NO_EPOCH,
                asked.last_fetched_epoch,
                asked.log_start_offset,
            )

    def _split_targets(self, targets: list[FetchTarget]) -> tuple[list[FetchTarget], list[PartitionRead]]:
        """The targets that exist, and the answers for those that do not. As in Kafka, the latter do not end a long poll."""
        readable: list[FetchTarget] = []
        unknown: list[PartitionRead] = []
        name: str | None = None
        partitions_count = 0
        for target in targets:
            if target.topic is None:
                target.topic = self._find_name(target.topic_id)  # a session may know an id before we do
                if target.topic is None:
                    unknown.append(PartitionRead(target, ErrorCode.UNKNOWN_TOPIC_ID))
                    continue
            if target.topic is not name:  # those of one topic come together: look it up once
                name = target.topic
                topic = self._metadata.find_topic(name)
                partitions_count = 0 if topic is None else len(topic.partitions)
            if 0 <= target.partition < partitions_count:
                readable.append(target)
            else:
                unknown.append(PartitionRead(target, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return readable, unknown

    def _find_name(self, topic_id: bytes) -> str | None:
        topic = self._metadata.find_topic_by_id(topic_id)
        return None if topic is None else topic.name


def error_response(request: FetchRequest, error: KafkaError) -> Any:
    """The error for the request and, for clients that name topics, for every partition."""
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: FetchRequest, error: KafkaError) -> Generator[None, None, FetchResponse]:
    def failed(asked: FetchPartition) -> PartitionData:
        return PartitionData(partition_index=asked.partition, error_code=error.code, high_watermark=-1, records=b"")

    response = FetchResponse(error_code=error.code)
    pace = Pace()
    for topic in request.topics:
        if topic.topic:
            partitions = yield from make_in_turns(failed, topic.partitions)
            response.responses.append(FetchableTopicResponse(topic=topic.topic, partitions=partitions))
        if pace.is_due():
            yield
    return response


def _isolation(request: FetchRequest, replica_id: int) -> FetchIsolation:
    if replica_id >= 0 or replica_id == FUTURE_LOCAL_REPLICA_ID:
        return FetchIsolation.LOG_END
    if request.isolation_level == READ_UNCOMMITTED:
        return FetchIsolation.HIGH_WATERMARK
    if request.isolation_level == READ_COMMITTED:
        return FetchIsolation.TXN_COMMITTED
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _forgets_many(request: FetchRequest) -> bool:
    return is_many((topic.partitions for topic in request.forgotten_topics_data), PARTITIONS_AT_ONCE)


def _forgotten(request: FetchRequest, uses_topic_ids: bool) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield partition_key(None if uses_topic_ids else topic.topic, topic.topic_id, partition)
