"""Fetch: read record batches from partitions, waiting for them if asked to.

Serves v4–v17.

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
v10 zstd topics. v11 consumers may fetch from followers (KIP-392). v12 divergence by last_fetched_epoch. v13 topic ids: UNKNOWN_TOPIC_ID,
INCONSISTENT_TOPIC_ID (KIP-516). v15 replica_state in place of replica_id. v16 the current leader and its endpoint (KIP-951).

Not done: preferred read replicas, quotas, authorisation (a replica needs CLUSTER_ACTION once there are others; CVE-2018-1288).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

from broker.cold_reads import try_again_when_read
from broker.context import RequestContext
from broker.deferred import Deferred
from broker.pieces import Pace, at_once_or_in_turns, made_in_pieces
from broker.replication.delayed_fetch import TARGETS_AT_ONCE, DelayedFetch
from broker.replication.fetch_data import NO_EPOCH, FetchIsolation, FetchParams, FetchTarget, PartitionRead
from broker.replication.fetch_session import PartitionKey, partition_key
from broker.replication.fetch_session_cache import FetchContext, FetchSessionCache, SessionAnswer
from broker.services import Handler, Services
from broker.turns import Work, emptied, is_many
from protocol.apis import APIS
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from protocol.templates import (
    RECORDS_SPECIMEN,
    Hole,
    PreparedRecordsResponse,
    PreparedResponse,
    RecordsTemplate,
    compile_records_template,
)
from storage.file_slice import FileSlice
from storage.page_cache import ColdRead

PARTITIONS_AT_ONCE = TARGETS_AT_ONCE
PARTITIONS_PER_PIECE = 64
MAX_WAIT_MS_LIMIT = 300_000  # half of connections.max.idle.ms: a longer poll would end with the connection
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
NEVER_READ_ERRORS = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
FUTURE_LOCAL_REPLICA_ID = -3
STORAGE_ERROR_VERSION_MIN = 6
ZSTD_VERSION_MIN = 10
FOLLOWER_READS_VERSION_MIN = 11
TOPIC_IDS_VERSION_MIN = 13
REPLICA_STATE_VERSION_MIN = 15
CURRENT_LEADER_VERSION_MIN = 16
FETCH_KEY = 1
TEMPLATE_VERSION_MIN = 10  # from here on every hole is in the encoding, and zstd needs no second look
TEMPLATES_MAX = 10_000  # (version, topic, isolation); each takes about 1 KB
# Numbers that stand out in an encoded response: their bytes are not UTF-8, so no name contains them.
SESSION_ID_HOLE = Hole(0x7EA1C3D5, 4)
INDEX_HOLE = Hole(0x7EA2C4D6, 4)
HIGH_WATERMARK_HOLE = Hole(0x7EB2D4E6F8091A2B, 8)
LAST_STABLE_OFFSET_HOLE = Hole(0x7EC3E5F70A1B2C3D, 8)
LOG_START_OFFSET_HOLE = Hole(0x7ED4F6081B2C3D4E, 8)
CURRENT_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def build(services: Services) -> Handler:
    return FetchHandler(services).handle


class FetchHandler:
    """Owns the fetch sessions, and keeps response templates."""

    def __init__(self, services: Services) -> None:
        self._reader = services.replica_manager.reader
        self._purgatory = services.replica_manager.fetch_purgatory
        self._metadata = services.metadata
        self._metrics = services.metrics
        self._clock = services.clock
        self._run_blocking = services.run_blocking
        self._templates: dict[tuple[int, str, bytes, bool], RecordsTemplate | None] = {}
        self._max_bytes = services.config.fetch_max_bytes
        self.sessions = FetchSessionCache(services.config.max_incremental_fetch_session_cache_slots, services.random)

    def handle(self, context: RequestContext, request: FetchRequest) -> FetchResponse | PreparedResponse | Deferred | Work:
        version, listener_name = context.api_version, context.connection.listener.name
        replica_id = request.replica_id if version < REPLICA_STATE_VERSION_MIN else request.replica_state.replica_id
        uses_topic_ids = version >= TOPIC_IDS_VERSION_MIN
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
            _forgotten(request, uses_topic_ids),
            uses_topic_ids=uses_topic_ids,
            isolation=_isolation(request, replica_id),
            is_from_follower=replica_id >= 0,
            now_ms=self._clock.monotonic_ms(),
        )
        if isinstance(session, ErrorCode):
            return FetchResponse(error_code=session)
        if len(session.targets) > PARTITIONS_AT_ONCE:
            return self._fetch_in_turns(session, self._params(request, replica_id, version), version, listener_name)
        readable, unknown = self._sort_out(session.targets)
        if session.watching is not None:
            for read in unknown:
                session.watching.unwatch(read.target)
        if not readable and not session.has_quiet_partitions:
            return self._respond(session, unknown, version, listener_name)
        params = self._params(request, replica_id, version)
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

        outcome.on_many = lambda targets: deferred.complete(
            self._answer_in_turns(params, session, targets, unknown, version, listener_name)
        )
        operation = self._reader.park_fetch(outcome, answer)
        if operation is not None:
            deferred.on_abandon = lambda: self._purgatory.cancel(operation)
        return deferred

    def _params(self, request: FetchRequest, replica_id: int, version: int) -> FetchParams:
        max_bytes = max(0, min(request.max_bytes, self._max_bytes))
        return FetchParams(
            replica_id=replica_id,
            replica_epoch=request.replica_state.replica_epoch,
            max_wait_ms=min(request.max_wait_ms, MAX_WAIT_MS_LIMIT),
            min_bytes=min(request.min_bytes, max_bytes),
            max_bytes=max_bytes,
            isolation=_isolation(request, replica_id),
            fetch_only_leader=replica_id >= 0 or version < FOLLOWER_READS_VERSION_MIN,
        )

    # -- very many partitions, in turns -------------------------------------------------------------------------------

    def _handle_in_turns(self, context: RequestContext, request: FetchRequest, replica_id: int, uses_topic_ids: bool) -> Work:
        """As `handle`, for a request that names many."""
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
            uses_topic_ids=uses_topic_ids,
            isolation=_isolation(request, replica_id),
            is_from_follower=replica_id >= 0,
            now_ms=self._clock.monotonic_ms(),
        )
        yield from emptied(forgotten)
        if isinstance(session, ErrorCode):
            return FetchResponse(error_code=session)
        params = self._params(request, replica_id, context.api_version)
        return (yield from self._fetch_in_turns(session, params, context.api_version, context.connection.listener.name))

    def _fetch_in_turns(self, session: FetchContext, params: FetchParams, version: int, listener_name: str) -> Work:
        """What `handle` does once the session is known, for many targets."""
        watching = session.watching
        try:
            readable, unknown = yield from self._sort_out_in_turns(session)
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
                self._add_reads(response, answer.reads[start : start + PARTITIONS_PER_PIECE], version, listener_name)
                yield
            yield from emptied(answer.reads, reads, session.targets)
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
        yield from emptied(places)
        return asked

    def _sort_out_in_turns(self, session: FetchContext) -> Generator[None, None, tuple[list[FetchTarget], list[PartitionRead]]]:
        readable: list[FetchTarget] = []
        unknown: list[PartitionRead] = []
        for start in range(0, len(session.targets), PARTITIONS_PER_PIECE):
            known, missing = self._sort_out(session.targets[start : start + PARTITIONS_PER_PIECE])
            readable += known
            unknown += missing
            if session.watching is not None:
                for read in missing:
                    session.watching.unwatch(read.target)
            yield
        return readable, unknown

    # -- the request ---------------------------------------------------------------------------------------------------

    def _targets(self, request: FetchRequest, uses_topic_ids: bool) -> Iterator[FetchTarget]:
        """What the request asks for, each partition once: in the first one's place with the last one's offset."""
        targets: dict[PartitionKey, FetchTarget] = {}
        for topic in request.topics:
            self._add_targets(targets, topic, uses_topic_ids)
        return iter(targets.values())

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

    def _sort_out(self, targets: list[FetchTarget]) -> tuple[list[FetchTarget], list[PartitionRead]]:
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

    # -- the response --------------------------------------------------------------------------------------------------

    def _respond(
        self, session: FetchContext, reads: list[PartitionRead], version: int, listener_name: str
    ) -> FetchResponse | PreparedResponse:
        """The response; for the usual one, a single partition without an error, by its template."""
        answer = session.answer(reads)
        if len(answer.reads) == 1 and version >= TEMPLATE_VERSION_MIN:
            read = answer.reads[0]
            if read.error_code is ErrorCode.NONE and read.diverging_epoch is None and not read.aborted_transactions:
                template = self._find_template(version, read)
                if template is not None:
                    return self._fill_template(template, answer.session_id, read)
        return self._response(answer, version, listener_name)

    def _find_template(self, version: int, read: PartitionRead) -> RecordsTemplate | None:
        """None for a topic whose random id happens to hold a hole's specimen: one in 300 million."""
        key = (version, read.target.topic or "", read.target.topic_id, read.aborted_transactions is None)
        try:
            return self._templates[key]
        except KeyError:
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
        template: RecordsTemplate | None
        try:
            template = _compile_template(*key)
        except ValueError:
            template = None
        self._templates[key] = template
        return template

    def _fill_template(self, template: RecordsTemplate, session_id: int, read: PartitionRead) -> PreparedResponse:
        """6 µs less than building and encoding the messages."""
        target, records = read.target, read.records
        name = target.topic or ""
        self._metrics.topic(name).bytes_out += len(records)
        values = (session_id, target.partition, read.high_watermark, read.last_stable_offset, read.log_start_offset)
        return PreparedRecordsResponse(template, values, records)

    def _response(self, answer: SessionAnswer, version: int, listener_name: str) -> FetchResponse:
        response = FetchResponse(error_code=answer.error_code, session_id=answer.session_id)
        self._add_reads(response, answer.reads, version, listener_name)
        return response

    def _add_reads(self, response: FetchResponse, reads: list[PartitionRead], version: int, listener_name: str) -> None:
        topic = response.responses[-1] if response.responses else None
        for read in reads:
            target = read.target
            if version < STORAGE_ERROR_VERSION_MIN and read.error_code is ErrorCode.KAFKA_STORAGE_ERROR:
                read.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # what such clients know to retry
            if version < ZSTD_VERSION_MIN:
                self._refuse_zstd(read)
            name = target.topic or ""
            if topic is None or topic.topic_id != target.topic_id or topic.topic != name:
                topic = FetchableTopicResponse(topic=name, topic_id=target.topic_id, partitions=[])
                response.responses.append(topic)
            partition = _partition_data(read)
            if read.error_code in CURRENT_LEADER_ERRORS and version >= CURRENT_LEADER_VERSION_MIN:
                self._name_leader(target, partition, response, listener_name)
            topic.partitions.append(partition)
            if name and len(read.records):
                self._metrics.topic(name).bytes_out += len(read.records)

    def _refuse_zstd(self, read: PartitionRead) -> None:
        """Consumers before v10 cannot read zstd: a topic that is set to it is not served to them."""
        target = read.target
        if target.topic is None or self._metadata.log_config(target.topic).compression_type != "zstd":
            return
        read.release()
        read.error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        read.high_watermark = read.last_stable_offset = read.log_start_offset = -1

    def _name_leader(self, target: FetchTarget, partition: PartitionData, response: FetchResponse, listener_name: str) -> None:
        image = self._metadata.find_partition(target.topic or "", target.partition)
        if image is None:
            return
        partition.current_leader = LeaderIdAndEpoch(leader_id=image.leader, leader_epoch=image.leader_epoch)
        broker = self._metadata.brokers.get(image.leader)
        if broker is None or listener_name not in broker.endpoints or any(node.node_id == image.leader for node in response.node_endpoints):
            return
        host, port = broker.endpoints[listener_name]
        response.node_endpoints.append(NodeEndpoint(node_id=image.leader, host=host, port=port, rack=broker.rack))


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
            partitions = yield from made_in_pieces(failed, topic.partitions)
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


def _compile_template(version: int, topic: str, topic_id: bytes, is_uncommitted: bool) -> RecordsTemplate:
    partition = PartitionData(
        partition_index=INDEX_HOLE.specimen,
        high_watermark=HIGH_WATERMARK_HOLE.specimen,
        last_stable_offset=LAST_STABLE_OFFSET_HOLE.specimen,
        log_start_offset=LOG_START_OFFSET_HOLE.specimen,
        aborted_transactions=None if is_uncommitted else [],
        records=RECORDS_SPECIMEN,
    )
    specimen = FetchResponse(
        session_id=SESSION_ID_HOLE.specimen,
        responses=[FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[partition])],
    )
    holes = (SESSION_ID_HOLE, INDEX_HOLE, HIGH_WATERMARK_HOLE, LAST_STABLE_OFFSET_HOLE, LOG_START_OFFSET_HOLE)
    return compile_records_template(APIS[FETCH_KEY], version, specimen, holes)


def _partition_data(read: PartitionRead) -> PartitionData:
    data = PartitionData(
        partition_index=read.target.partition,
        error_code=read.error_code,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=[] if read.error_code in NEVER_READ_ERRORS else None,
        records=read.records,
    )
    if read.aborted_transactions is not None:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset) for aborted in read.aborted_transactions
        ]
    if read.diverging_epoch is not None:
        data.diverging_epoch = EpochEndOffset(epoch=read.diverging_epoch.epoch, end_offset=read.diverging_epoch.end_offset)
    return data
