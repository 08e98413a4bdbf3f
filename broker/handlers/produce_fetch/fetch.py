"""Fetch: read record batches from partitions, waiting for them if asked to.

Serves v4–v18.

Behaviour:
- Sessions (KIP-227) and long polling: a fetch is answered at once if min_bytes are there, or an error or divergence; else when that
happens, or after max_wait_ms. max_wait_ms is clamped to MAX_WAIT_MS_LIMIT.
- Partitions are read in the request's order. The first non-empty one gives its first batch regardless of the limits (KIP-74); max_bytes is
clamped to fetch.max.bytes. Whole batches only: the first may begin before the offset asked for.
- READ_COMMITTED stops at the last stable offset and lists aborted transactions ([] for none); otherwise the list is null. An isolation
level that does not exist is UNKNOWN_SERVER_ERROR, as in Kafka.
- A full response has every requested partition once; for one named twice the last entry counts.
- A consumer over its quota gets an empty response with its throttle time; its session stays as it was. It reads no more at once than its
quota allows in all its windows (KAFKA-9677). Followers are exempt.
- Many partitions are read in turns, so they may be read at different times.
- TOPIC_AUTHORIZATION_FAILED for the partitions of a topic without READ on it; for all, if the request has a replica's id and its client no
CLUSTER_ACTION on the cluster (CVE-2018-1288). A request that waits keeps what it was let in with.
- Replicas: an id outside the partition's replicas is refused, so a single node refuses every one.

Version notes: v7 sessions. v9 leader epochs are checked unless they are negative (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH; KIP-320). v10
clients can read zstd; records are sent as they are. v11 consumers may fetch from followers, and a leader refers them to one in their rack
if replica.selector.class is set (KIP-392). v12 divergence by last_fetched_epoch. v13 topic ids: UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID
(KIP-516). v15 replica_state in place of replica_id. v16 the current leader and its endpoint (KIP-951). v17 and v18 add fields that only
replicas of the metadata log send: their directory and their high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

from broker.handlers.produce_fetch.fetch_answers import FetchAnswers
from broker.handlers.services import Handler, Services
from broker.loop.cold_reads import bring_in
from broker.loop.deferred import Deferred
from broker.loop.turns import ELEMENTS_AT_ONCE, at_once_or_in_turns, at_once_or_in_turns_then
from broker.network.context import RequestContext
from broker.replication.fetch.delayed_fetch import DelayedFetch
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
from broker.replication.fetch.fetch_session_cache import FINAL_EPOCH, NO_SESSION_ID, WITHOUT_SESSION, FetchContext, FetchSessionCache
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from storage.page_cache import ColdRead

MAX_WAIT_MS_LIMIT = 300_000  # half of connections.max.idle.ms: a longer poll would end with the connection
ISOLATION_OF_CONSUMERS = {0: FetchIsolation.HIGH_WATERMARK, 1: FetchIsolation.TXN_COMMITTED}
"""By isolation level: READ_UNCOMMITTED, READ_COMMITTED."""
FUTURE_LOCAL_REPLICA_ID = -3
FOLLOWER_READS_VERSION_MIN = 11
TOPIC_IDS_VERSION_MIN = 13
REPLICA_STATE_VERSION_MIN = 15

Then = Callable[[list[FetchTarget], list[PartitionRead]], Any]

_READ, _TOPIC = AclOperation.READ, ResourceType.TOPIC
"""Read once: in Python 3.11 the look at an Enum's member takes longer than the decision."""


def build(services: Services) -> Handler:
    return FetchHandler(services).handle


class FetchHandler:
    """Owns the fetch sessions."""

    def __init__(self, services: Services) -> None:
        replica_manager = services.replica_manager
        self.reader = replica_manager.reader
        self.purgatory = replica_manager.fetch_purgatory
        self.topics = services.metadata.topics
        self.run_blocking = services.run_blocking
        self._metadata = services.metadata
        self.respond = FetchAnswers(services.metadata, services.metrics, replica_manager.quotas.leader).respond
        self.sessions = FetchSessionCache(services.config.max_incremental_fetch_session_cache_slots, services.random, services.clock)
        self._selects_replicas = replica_manager.reader.selector is not None
        self._new_leader_followers = replica_manager.new_leader_followers
        self._quota = replica_manager.quotas.leader
        self._max_bytes = services.config.fetch_max_bytes

    def handle(self, context: RequestContext, request: FetchRequest) -> Any:
        topics, uses_topic_ids = request.topics, context.api_version >= TOPIC_IDS_VERSION_MIN
        if not topics:
            return self._fetch(context, request, [])
        if len(topics) == 1 and len(topics[0].partitions) == 1:
            name = self.find_name(topics[0].topic_id) if uses_topic_ids else topics[0].topic
            return self._fetch(context, request, [_target(name, topics[0].topic_id, topics[0].partitions[0])])
        targets = self._targets(request, uses_topic_ids)
        return at_once_or_in_turns_then(targets, ELEMENTS_AT_ONCE, partial(self._fetch, context, request))

    def find_name(self, topic_id: bytes) -> str | None:
        topic = self._metadata.find_topic_by_id(topic_id)
        return None if topic is None else topic.name

    def _targets(self, request: FetchRequest, uses_topic_ids: bool) -> Generator[None, None, list[FetchTarget]]:
        """Returns the requested partitions, each once: in the place of its first entry, with the offset of its last."""
        targets: dict[PartitionKey, FetchTarget] = {}
        for topic in request.topics:
            name = self.find_name(topic.topic_id) if uses_topic_ids else topic.topic
            topic_key = topic.topic_id if uses_topic_ids else topic.topic
            for asked in topic.partitions:
                targets[topic_key, asked.partition] = _target(name, topic.topic_id, asked)
                yield
            yield
        return list(targets.values())

    def _fetch(self, context: RequestContext, request: FetchRequest, targets: list[FetchTarget]) -> Any:
        version = context.api_version
        params = self._params(context, request)
        is_from_follower = params.replica_id >= 0
        access = context.access
        is_denied = is_from_follower and not access.is_open and not access.allows_on_cluster(AclOperation.CLUSTER_ACTION)
        session = WITHOUT_SESSION
        if request.session_epoch != FINAL_EPOCH or request.session_id != NO_SESSION_ID:
            uses_topic_ids = version >= TOPIC_IDS_VERSION_MIN
            found = self.sessions.new_context(
                request.session_id,
                request.session_epoch,
                targets,
                _forgotten(request, uses_topic_ids) if request.forgotten_topics_data else (),
                context.connection,
                uses_topic_ids=uses_topic_ids,
                is_privileged=is_from_follower and not is_denied,
                isolation=params.isolation,
                rights=access.rights,
            )
            if isinstance(found, ErrorCode):
                return FetchResponse(error_code=found)
            session = found
            if session.targets is not None:
                targets = session.targets
        if is_from_follower:
            context.connection.sends_at_once = True  # producers wait for the follower's next fetch
        elif context.connection.limit_send_buffer is not None:
            context.connection.limit_send_buffer()
        return _Fetch(self, context, params, session, is_denied=is_denied).begin(targets)

    def _params(self, context: RequestContext, request: FetchRequest) -> FetchParams:
        version = context.api_version
        replica_id = request.replica_id if version < REPLICA_STATE_VERSION_MIN else request.replica_state.replica_id
        max_bytes = max(0, min(request.max_bytes, self._max_bytes))
        if context.charge is not None and replica_id < 0:
            max_bytes = context.charge.fetch_bytes_max(max_bytes)
        max_wait_ms = min(request.max_wait_ms, MAX_WAIT_MS_LIMIT)
        if replica_id >= 0 or replica_id == FUTURE_LOCAL_REPLICA_ID:
            isolation = FetchIsolation.LOG_END
        elif request.isolation_level in ISOLATION_OF_CONSUMERS:
            isolation = ISOLATION_OF_CONSUMERS[request.isolation_level]
        else:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if replica_id >= 0 and self._new_leader_followers.by_follower:
            max_wait_ms = self._new_leader_followers.bound_wait(replica_id, max_wait_ms)
        params = FetchParams(
            replica_id,
            request.replica_state.replica_epoch,
            max_wait_ms,
            min(request.min_bytes, max_bytes),
            max_bytes,
            isolation,
            replica_id >= 0 or version < FOLLOWER_READS_VERSION_MIN,
        )
        if request.rack_id and self._selects_replicas and replica_id < 0:
            return RackFetchParams(params, request.rack_id, context.connection.listener.name)
        if replica_id >= 0 and self._quota.throttled:
            return ThrottledFetchParams(params, self._quota)
        return params


class _Fetch:
    """The handling of one request, from its session context to its answer."""

    __slots__ = ("_access", "_context", "_handler", "_is_denied", "_params", "_readable", "_session", "_unknown")

    def __init__(
        self, handler: FetchHandler, context: RequestContext, params: FetchParams, session: FetchContext, *, is_denied: bool
    ) -> None:
        """`is_denied`: it is said to be a replica's, and the client may not act for the cluster."""
        self._access = context.access
        self._is_denied = is_denied
        self._readable: dict[str, bool] = {}  # by topic, where there is an authorizer
        self._handler = handler
        self._context = context
        self._params = params
        self._session = session
        self._unknown: list[PartitionRead] = []  # the answers for unknown partitions

    def begin(self, targets: list[FetchTarget]) -> Any:
        """Returns the response, a Deferred of it, or a generator that returns either."""
        if len(targets) > 1:
            return at_once_or_in_turns_then(self._find_readable(targets), ELEMENTS_AT_ONCE, self._read_or_wait)
        return self._read_or_wait(targets if not targets or self._is_readable(targets[0]) else [])

    def _find_readable(self, targets: list[FetchTarget]) -> Generator[None, None, list[FetchTarget]]:
        readable: list[FetchTarget] = []
        for target in targets:
            if self._is_readable(target):
                readable.append(target)
            yield
        return readable

    def _is_readable(self, target: FetchTarget) -> bool:
        """Whether the partition exists and may be read. If not, its error is added to the answer; as in Kafka, that does not end a long
        poll."""
        handler = self._handler
        if target.topic is None:
            target.topic = handler.find_name(target.topic_id)  # a session may have an id before we know it
        if self._is_denied:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif target.topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif not self._access.is_open and not self._is_allowed(target.topic):
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else:
            topic = handler.topics.get(target.topic)
            if topic is not None and 0 <= target.partition < len(topic.partitions):
                return True
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._unknown.append(PartitionRead(target, error))
        if self._session.watching is not None:
            self._session.watching.unwatch(target)
        return False

    def _is_allowed(self, topic: str) -> bool:
        """Whether the client may READ the topic. It is asked once, however many partitions of it are fetched."""
        if self._params.replica_id >= 0:
            return True
        is_allowed = self._readable.get(topic)
        if is_allowed is None:
            is_allowed = self._readable[topic] = self._access.allows(_READ, _TOPIC, topic)
        return is_allowed

    def _read_or_wait(self, readable: list[FetchTarget]) -> Any:
        watching = self._session.watching
        if not readable and (watching is None or len(watching.changed) == len(watching.targets)):  # nothing to wait for
            return self._respond([])
        operation = self._handler.reader.find_wait(self._params, readable, watching)
        if operation is not None:
            return self._park(operation)
        return self._read(readable, self._respond_or_wait, is_arrival=True)

    def _read(self, targets: list[FetchTarget], then: Then, *, is_arrival: bool) -> Any:
        """Read the targets and return the result of `then`: in turns if there are many targets, or if a read has to wait for the disk."""
        reader, run_blocking = self._handler.reader, self._handler.run_blocking
        arrival: Deferred | None = None
        if len(targets) == 1:
            try:
                read = reader.read_one(self._params, targets[0], may_wait_for_disk=run_blocking is None, is_arrival=is_arrival)
            except ColdRead as missing:
                assert run_blocking is not None, "a read that may wait for the disk raises no ColdRead"
                arrival = bring_in(missing, run_blocking)
            else:
                return then(targets, [read])
        reading = reader.read(self._params, targets, run_blocking, is_arrival=is_arrival, arrival=arrival)
        return at_once_or_in_turns_then(reading, ELEMENTS_AT_ONCE, partial(then, targets))

    def _respond_or_wait(self, targets: list[FetchTarget], reads: list[PartitionRead]) -> Any:
        operation = self._handler.reader.delay(self._params, targets, reads, self._session.watching)
        return self._respond(reads) if operation is None else self._park(operation)

    def _park(self, operation: DelayedFetch) -> Deferred:
        answer = Deferred()
        if self._handler.reader.park(operation, partial(answer.resolve, self._read_again)):
            answer.on_abandon = lambda: self._leave(operation)
        return answer

    def _leave(self, operation: DelayedFetch) -> None:
        """The connection has ended while the fetch waited."""
        self._handler.purgatory.cancel(operation)
        self._end_watch()

    def _end_watch(self) -> None:
        """The fetch waits no more: if its session has ended meanwhile, no partition has to notify it."""
        if self._session.watching is not None:
            self._session.watching.close_if_ended()

    def _read_again(self, targets: list[FetchTarget]) -> Any:
        """Called inside another request, whose client does not pay for this."""
        self._end_watch()  # now, because the connection may end before the answer
        charge = self._context.charge
        if charge is None or not charge.is_timed:
            return self._read(targets, lambda _, reads: self._respond(reads), is_arrival=False)
        resumed = charge.resume()
        try:
            return self._read(targets, lambda _, reads: self._respond(reads), is_arrival=False)
        finally:
            charge.pause(resumed)

    def _respond(self, reads: list[PartitionRead]) -> Any:
        unknown = self._unknown
        return self._handler.respond(self._context, self._session, reads + unknown if unknown else reads, self._params.replica_id >= 0)


def error_response(request: FetchRequest, error: KafkaError) -> Any:
    """The error for the request and, for clients that name topics, for every partition."""
    return at_once_or_in_turns(_failed(request, error), ELEMENTS_AT_ONCE)


def _failed(request: FetchRequest, error: KafkaError) -> Generator[None, None, FetchResponse]:
    response = FetchResponse(error_code=error.code)
    for topic in request.topics:
        if topic.topic:
            answer = FetchableTopicResponse(topic=topic.topic, partitions=[])
            response.responses.append(answer)
            for asked in topic.partitions:
                answer.partitions.append(
                    PartitionData(partition_index=asked.partition, error_code=error.code, high_watermark=-1, records=b"")
                )
                yield
        yield
    return response


def _target(topic: str | None, topic_id: bytes, asked: FetchPartition) -> FetchTarget:
    return FetchTarget(
        topic,
        asked.partition,
        asked.fetch_offset,
        size if (size := asked.partition_max_bytes) > 0 else 0,
        topic_id,
        epoch if (epoch := asked.current_leader_epoch) >= 0 else NO_EPOCH,
        epoch if (epoch := asked.last_fetched_epoch) >= 0 else NO_EPOCH,
        asked.log_start_offset,
    )


def _forgotten(request: FetchRequest, uses_topic_ids: bool) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            yield partition_key(None if uses_topic_ids else topic.topic, topic.topic_id, partition)
