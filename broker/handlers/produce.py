"""Produce: append record batches to partitions led here.

Serves v3–v12.

Behaviour:
- One batch for each partition. acks=0 is never answered; any error then closes the connection, which is all a client notices.
- acks other than -1, 0, 1: INVALID_REQUIRED_ACKS for every partition.
- A partition named twice gets INVALID_REQUEST and nothing appended. Kafka silently lets the last one win.
- Internal topics: INVALID_TOPIC_EXCEPTION, for every client id (Kafka lets `__admin_client` through).
- A transactional batch without a transactional id fails the whole request with TRANSACTIONAL_ID_AUTHORIZATION_FAILED; with one
  it gets INVALID_TXN_STATE, as from a partition that was never added to the transaction.
- Batches whose records take long to check are checked in a thread first; the connection's later requests come behind them.
- An unexpected failure is raised, never answered: dispatch closes the connection. After UNKNOWN_SERVER_ERROR the Java client
  gives an idempotent batch new sequence numbers and so duplicates it (KAFKA-14034).

Version notes: v5 log_start_offset. v7 zstd. v8 record_errors and error_message. v10 the current leader and its endpoint with
NOT_LEADER_OR_FOLLOWER (KIP-951).

Not done: transactions, quotas, authorisation; v13 (topic ids).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from broker.context import Handler, RequestContext, Services
from broker.deferred import Deferred
from broker.limited_log import LimitedLog
from broker.log_fields import Fields
from broker.metadata.image import INTERNAL_TOPICS
from broker.replication.batch_preparation import BatchPreparer
from broker.replication.delayed_produce import PartitionAppendResult
from broker.replication.replica_manager import AppendEntry
from protocol.apis import APIS
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.templates import Hole, PreparedResponse, compile_template

log = logging.getLogger("barnabas.produce")

NO_ACKS = 0
VALID_ACKS = frozenset({-1, NO_ACKS, 1})
ZSTD_VERSION_MIN = 7
CURRENT_LEADER_VERSION_MIN = 10
LOG_START_OFFSET_VERSION_MIN = 5
ATTRIBUTES_LOW_BYTE = 22  # position in a batch: the attributes are an int16 at 21
TRANSACTIONAL_BIT = 0x10
PRODUCE_KEY = 0
TEMPLATES_MAX = 10_000  # (version, topic) pairs; each takes about 1 KB
# Numbers that stand out in an encoded response: their bytes are not UTF-8, so no name contains them.
INDEX_HOLE = Hole(0x7EA1C3D5, 4)
BASE_OFFSET_HOLE = Hole(0x7EB2D4E6F8091A2B, 8)
LOG_APPEND_TIME_HOLE = Hole(0x7EC3E5F70A1B2C3D, 8)
LOG_START_OFFSET_HOLE = Hole(0x7ED4F6081B2C3D4E, 8)


def build(services: Services) -> Handler:
    return ProduceHandler(services).handle


class ProduceHandler:
    """Keeps nothing between requests but response templates."""

    def __init__(self, services: Services) -> None:
        self._templates: dict[tuple[int, str], Callable[..., bytes]] = {}
        self._replica_manager = services.replica_manager
        self._metadata = services.metadata
        self._preparer = None if services.run_blocking is None else BatchPreparer(services.replica_manager, services.run_blocking)
        self._clock = services.clock
        self._log = LimitedLog(log, services.clock)

    def handle(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse | PreparedResponse | Deferred | None:
        entries: list[AppendEntry] = []
        refused: dict[int, PartitionAppendResult] = {}
        self._sort_out(request, entries, refused)
        preparer = self._preparer
        if preparer is None or not preparer.is_needed(context.connection_id, entries):
            return self._append(context, request, entries, refused)
        if preparer.has_room(entries):
            return self._append_later(preparer, context, request, entries, refused)
        results = [_refusal(topic, index, ErrorCode.REQUEST_TIMED_OUT) for topic, index, _ in entries]
        if request.acks == NO_ACKS:
            _raise_unanswered(refused.values(), results)
        return self._respond(_merge(results, refused), context)

    def _append_later(
        self,
        preparer: BatchPreparer,
        context: RequestContext,
        request: ProduceRequest,
        entries: list[AppendEntry],
        refused: dict[int, PartitionAppendResult],
    ) -> Deferred:
        """Append once a thread has checked the records; in the order of the connection's requests, for sequences depend on it."""
        outer = Deferred()

        def append(prepared: list[AppendEntry] | Exception) -> None:
            if outer.is_abandoned:
                return  # its connection is gone, and perhaps the logs are closed
            if isinstance(prepared, Exception):
                outer.complete(prepared)
                return
            try:
                outcome = self._append(replace(context, now_ms=self._clock.now_ms()), request, prepared, refused)
            except Exception as e:
                outer.complete(e)
                return
            outer.follow(outcome)

        is_zstd_allowed = context.api_version >= ZSTD_VERSION_MIN
        outer.on_abandon = preparer.submit(
            context.connection_id, entries, now_ms=context.now_ms, is_zstd_allowed=is_zstd_allowed, on_done=append
        )
        return outer

    def _append(
        self, context: RequestContext, request: ProduceRequest, entries: list[AppendEntry], refused: dict[int, PartitionAppendResult]
    ) -> ProduceResponse | PreparedResponse | Deferred | None:
        version, acks = context.api_version, request.acks
        replica_manager = self._replica_manager
        results, pending = replica_manager.append_now(entries, acks, context.now_ms, version >= ZSTD_VERSION_MIN)
        if acks == NO_ACKS:
            _raise_unanswered(refused.values(), results)
            return None
        if refused:
            results = _merge(results, refused)
        if pending is None:
            return self._respond(results, context)
        deferred = Deferred()

        def answer(results: list[PartitionAppendResult]) -> None:
            deferred.resolve(self._respond, results, context)

        operation = replica_manager.park(results, pending, acks, request.timeout_ms, answer)
        if operation is not None:
            deferred.on_abandon = lambda: replica_manager.produce_purgatory.cancel(operation)
        return deferred

    def _sort_out(self, request: ProduceRequest, entries: list[AppendEntry], refused: dict[int, PartitionAppendResult]) -> None:
        """Fill `entries` with what may be appended and `refused` with the answers for the rest, by place in the request."""
        topics = request.topic_data
        if len(topics) == 1 and len(topics[0].partition_data) == 1 and request.acks in VALID_ACKS:  # no need to look for a second
            data = topics[0].partition_data[0]
            refusal = self._find_refusal(request, topics[0].name, data)
            if refusal is None:
                entries.append((topics[0].name, data.index, data.records))  # type: ignore[arg-type]
            else:
                refused[0] = _refusal(topics[0].name, data.index, refusal)
            return
        position = 0
        positions: dict[tuple[str, int], int] = {}
        error: ErrorCode | None = None if request.acks in VALID_ACKS else ErrorCode.INVALID_REQUIRED_ACKS
        for topic in topics:
            name = topic.name
            for data in topic.partition_data:
                key = (name, data.index)
                code = error or self._find_refusal(request, name, data)
                if key in positions:
                    code = ErrorCode.INVALID_REQUEST
                    first = positions[key]
                    refused[first] = _refusal(name, data.index, code)
                positions[key] = position
                if code is None:
                    entries.append((name, data.index, data.records))  # type: ignore[arg-type]
                else:
                    refused[position] = _refusal(name, data.index, code)
                position += 1
        if len(entries) + len(refused) != position:  # a first of two was taken before its second came
            twice = {(result.topic, result.partition) for result in refused.values()}
            entries[:] = [entry for entry in entries if (entry[0], entry[1]) not in twice]

    def _find_refusal(self, request: ProduceRequest, topic: str, data: PartitionProduceData) -> ErrorCode | None:
        records = data.records
        if records is None or len(records) <= ATTRIBUTES_LOW_BYTE:
            return ErrorCode.INVALID_RECORD
        if records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
            if request.transactional_id is None:
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return ErrorCode.INVALID_TXN_STATE
        if topic in INTERNAL_TOPICS and self._metadata.find_topic(topic) is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        return None

    def _respond(self, results: list[PartitionAppendResult], context: RequestContext) -> ProduceResponse | PreparedResponse:
        """The response; for the usual one, a single partition without an error, by its template."""
        version = context.api_version
        if len(results) == 1:
            result = results[0]
            if result.error_code is ErrorCode.NONE:
                fill = self._templates.get((version, result.topic)) or self._compile_template(version, result.topic)
                return PreparedResponse(
                    fill,
                    (result.partition, result.base_offset, result.log_append_time_ms, result.log_start_offset)
                    if version >= LOG_START_OFFSET_VERSION_MIN
                    else (result.partition, result.base_offset, result.log_append_time_ms),
                )
        return self._response(results, context)

    def _compile_template(self, version: int, topic: str) -> Callable[..., bytes]:
        if len(self._templates) >= TEMPLATES_MAX:
            self._templates.clear()
        partition = PartitionProduceResponse(
            index=INDEX_HOLE.specimen,
            base_offset=BASE_OFFSET_HOLE.specimen,
            log_append_time_ms=LOG_APPEND_TIME_HOLE.specimen,
            log_start_offset=LOG_START_OFFSET_HOLE.specimen,
        )
        specimen = ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[partition])])
        holes = [INDEX_HOLE, BASE_OFFSET_HOLE, LOG_APPEND_TIME_HOLE]
        if version >= LOG_START_OFFSET_VERSION_MIN:
            holes.append(LOG_START_OFFSET_HOLE)
        fill = self._templates[version, topic] = compile_template(APIS[PRODUCE_KEY], version, specimen, holes)
        return fill

    def _response(self, results: list[PartitionAppendResult], context: RequestContext) -> ProduceResponse:
        response = ProduceResponse()
        topic: TopicProduceResponse | None = None
        for result in results:
            if topic is None or topic.name != result.topic:
                topic = TopicProduceResponse(name=result.topic, partition_responses=[])
                response.responses.append(topic)
            partition = PartitionProduceResponse(
                index=result.partition,
                error_code=result.error_code,
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=result.log_start_offset,
            )
            if result.error_code is not ErrorCode.NONE:
                self._explain(result, partition, response, context.api_version, context.listener_name)
                self._log_refusal(result, context)
            topic.partition_responses.append(partition)
        return response

    def _log_refusal(self, result: PartitionAppendResult, context: RequestContext) -> None:
        """Many a producer drops what it is told; each kind of error has a budget, so that none hides another."""
        error = result.error_code.name
        kind = f"produce refused with {error}"
        if self._log.omits(kind):
            return
        reason = result.error_message or (result.record_errors[0].message if result.record_errors else None)
        who = {"principal": context.principal, "client": context.client_host, "client_id": context.client_id}
        facts = Fields(topic=result.topic, partition=result.partition, error=error, reason=reason, **who)
        self._log.info(kind, "produce refused %s", facts)

    def _explain(
        self,
        result: PartitionAppendResult,
        partition: PartitionProduceResponse,
        response: ProduceResponse,
        version: int,
        listener_name: str,
    ) -> None:
        partition.error_message = result.error_message
        partition.record_errors = [
            BatchIndexAndErrorMessage(batch_index=error.batch_index, batch_index_error_message=error.message)
            for error in result.record_errors or ()
        ]
        if result.error_code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or version < CURRENT_LEADER_VERSION_MIN:
            return
        image = self._metadata.find_partition(result.topic, result.partition)
        if image is None:
            return
        partition.current_leader = LeaderIdAndEpoch(leader_id=image.leader, leader_epoch=image.leader_epoch)
        broker = self._metadata.brokers.get(image.leader)
        if broker is None or listener_name not in broker.endpoints or any(node.node_id == image.leader for node in response.node_endpoints):
            return
        host, port = broker.endpoints[listener_name]
        response.node_endpoints.append(NodeEndpoint(node_id=image.leader, host=host, port=port, rack=broker.rack))


def error_response(request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    """The error for every partition. With acks=0 nobody reads it: DecodeError closes the connection."""
    if request.acks == NO_ACKS:
        raise DecodeError(f"acks=0 and {error.code.name}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=error.code, base_offset=-1) for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _raise_unanswered(refused: Iterable[PartitionAppendResult], results: Iterable[PartitionAppendResult]) -> None:
    """With acks=0 the client can't be told of an error but by closing its connection, so that it refreshes its metadata."""
    for result in (*refused, *results):
        if result.error_code is not ErrorCode.NONE:
            raise DecodeError(f"acks=0 and {result.error_code.name} for {result.topic}-{result.partition}")


def _refusal(topic: str, partition: int, error_code: ErrorCode) -> PartitionAppendResult:
    result = PartitionAppendResult(topic, partition)
    result.fail(error_code, REFUSAL_MESSAGES.get(error_code))
    return result


REFUSAL_MESSAGES = {
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1",
    ErrorCode.INVALID_REQUEST: "The partition is named more than once in the request",
    ErrorCode.INVALID_RECORD: "There is no record batch for the partition",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Clients may not write to internal topics",
    ErrorCode.REQUEST_TIMED_OUT: "Too many batches wait for the check of their records; nothing was appended",
    ErrorCode.INVALID_TXN_STATE: "The partition is not part of a transaction of this producer",
}


def _merge(appended: list[PartitionAppendResult], refused: dict[int, PartitionAppendResult]) -> list[PartitionAppendResult]:
    """All answers in the request's order."""
    rest = iter(appended)
    return [refused[position] if position in refused else next(rest) for position in range(len(appended) + len(refused))]
