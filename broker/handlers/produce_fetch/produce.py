"""Produce: append record batches to partitions led here.

Serves v3–v13.

Behaviour:
- One batch for each partition. acks=0 is never answered; any error then closes the connection, which is all a client notices.
- acks other than -1, 0, 1: INVALID_REQUIRED_ACKS for every partition.
- A partition named twice gets INVALID_REQUEST and nothing appended. Kafka silently lets the last one win.
- Internal topics: INVALID_TOPIC_EXCEPTION, for every client id (Kafka lets `__admin_client` through).
- A transactional batch without a transactional id fails the whole request with TRANSACTIONAL_ID_AUTHORIZATION_FAILED; with one
  it gets INVALID_TXN_STATE, as from a partition that was never added to the transaction.
- Batches whose records take long to check are checked in a thread first; the connection's later requests come behind them.
- A request of many partitions, or of several with much in them, is appended in turns: each batch whole, others are served in between.
- Of all records that were refused, the answer names RECORD_ERRORS_PER_ANSWER at most: a kilobyte can hold a thousand, and an answer
  would be a hundred times as large as its request. Kafka names all.
- An unexpected failure is raised, never answered: dispatch closes the connection. After UNKNOWN_SERVER_ERROR the Java client
  gives an idempotent batch new sequence numbers and so duplicates it (KAFKA-14034).

Version notes: v5 log_start_offset. v7 zstd. v8 record_errors and error_message. v10 the current leader and its endpoint with
NOT_LEADER_OR_FOLLOWER (KIP-951). v13 topics by their ids; an unknown one is UNKNOWN_TOPIC_ID for each partition (KIP-516).

Not done: transactions, quotas, authorisation.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from broker.handlers.produce_fetch.produce_answers import ProduceAnswers, unknown_name
from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.pieces import Pace
from broker.loop.turns import Work, at_once_or_in_turns
from broker.metadata.image import INTERNAL_TOPICS
from broker.network.context import RequestContext
from broker.observability.limited_log import LimitedLog
from broker.replication.batch_preparation import BatchPreparer
from broker.replication.delayed_produce import PartitionAppendResult
from broker.replication.produce_path import AppendEntry
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.framing import SCRATCH_SIZE, has_own_buffer
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.templates import PreparedResponse

if TYPE_CHECKING:
    from broker.replication.partition import Partition

log = logging.getLogger("barnabas.produce")

NO_ACKS = 0
VALID_ACKS = frozenset({-1, NO_ACKS, 1})
NAMED_VERSION_MAX = 12  # later versions give topics by their ids
ZSTD_VERSION_MIN = 7
ATTRIBUTES_LOW_BYTE = 22  # position in a batch: the attributes are an int16 at 21
TRANSACTIONAL_BIT = 0x10
PARTITIONS_AT_ONCE = 64
"""More go in turns: an append takes 7 to 20 µs."""
BYTES_AT_ONCE = 1024 * 1024  # of several partitions; a single batch is appended whole however large it is
PARTITIONS_PER_PIECE, BYTES_PER_PIECE = 16, 128 * 1024


def build(services: Services) -> Handler:
    return ProduceHandler(services).handle


class ProduceHandler:
    """Keeps nothing between requests but what ProduceAnswers does."""

    def __init__(self, services: Services) -> None:
        self._produce_path = services.replica_manager.produce_path
        self._purgatory = services.replica_manager.produce_purgatory
        self._metadata = services.metadata
        self._preparer = None if services.worker is None else BatchPreparer(services.replica_manager, services.worker)
        self._clock = services.clock
        self._answers = ProduceAnswers(services.metadata, LimitedLog(log, services.clock))
        self._respond = self._answers.respond

    def handle(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse | PreparedResponse | Deferred | Work | None:
        if context.api_version > NAMED_VERSION_MAX:
            if _is_long(request):
                return self._handle_by_ids_in_turns(context, request)
            for topic in request.topic_data:
                self._name(topic)
        entries: list[AppendEntry] = []
        refused: dict[int, PartitionAppendResult] = {}
        if not self._collect_entries(request, entries, refused):
            return self._handle_in_turns(context, request)
        preparer = self._preparer
        if preparer is None or not preparer.is_needed(entries):
            return self._append(context, request, entries, refused)
        if preparer.has_room(entries):
            return self._append_later(preparer, context, request, entries, refused)
        return self._refuse_all(context, request, entries, refused)

    def _append_later(
        self,
        preparer: BatchPreparer,
        context: RequestContext,
        request: ProduceRequest,
        entries: list[AppendEntry],
        refused: dict[int, PartitionAppendResult],
    ) -> Deferred:
        """Append once the worker has checked the records; nothing that its connection sent later starts before."""
        outer = Deferred()
        outer.holds_order = True

        def append(prepared: list[AppendEntry] | Exception) -> None:
            if isinstance(prepared, Exception):
                outer.complete(prepared)
                return
            try:
                outcome = self._append(context.at(self._clock.now_ms()), request, prepared, refused)
            except Exception as e:
                outer.complete(e)
                return
            outer.follow(outcome)

        checked = self._check(preparer, context, entries)
        outer.on_abandon = checked.abandon  # its connection is gone, and perhaps the logs are closed
        checked.when_done(append)
        return outer

    def _check(self, preparer: BatchPreparer, context: RequestContext, entries: list[AppendEntry]) -> Deferred:
        is_zstd_allowed = context.api_version >= ZSTD_VERSION_MIN
        return preparer.prepare(entries, now_ms=context.now_ms, is_zstd_allowed=is_zstd_allowed)

    def _refuse_all(
        self, context: RequestContext, request: ProduceRequest, entries: list[AppendEntry], refused: dict[int, PartitionAppendResult]
    ) -> ProduceResponse | PreparedResponse:
        results = [_refusal(topic, index, ErrorCode.REQUEST_TIMED_OUT) for topic, index, _ in entries]
        if request.acks == NO_ACKS:
            _raise_unanswered(refused.values(), results)
        return self._respond(_merge(results, refused), context)

    def _append(
        self, context: RequestContext, request: ProduceRequest, entries: list[AppendEntry], refused: dict[int, PartitionAppendResult]
    ) -> ProduceResponse | PreparedResponse | Deferred | None:
        version, acks = context.api_version, request.acks
        produce_path = self._produce_path
        results, pending = produce_path.append_now(entries, acks, context.now_ms, version >= ZSTD_VERSION_MIN)
        if acks == NO_ACKS:
            _raise_unanswered(refused.values(), results)
            return None
        if refused:
            results = _merge(results, refused)
        if pending is None:
            return self._respond(results, context)
        _drop_records(request)
        context.connection.sends_at_once = True  # the producer has waited for the followers, the followers wait for its next records
        deferred = Deferred()

        def answer(results: list[PartitionAppendResult]) -> None:
            deferred.resolve(self._respond, results, context)

        operation = produce_path.park(results, pending, acks, request.timeout_ms, answer)
        if operation is not None:
            deferred.on_abandon = lambda: self._purgatory.cancel(operation)
        return deferred

    def _name(self, topic: TopicProduceData) -> None:
        """Give the topic the name that belongs to its id."""
        image = self._metadata.find_topic_by_id(topic.topic_id)
        topic.name = unknown_name(topic.topic_id) if image is None else image.name

    # -- many partitions, in turns -------------------------------------------------------------------------------------

    def _handle_by_ids_in_turns(self, context: RequestContext, request: ProduceRequest) -> Work:
        for count, topic in enumerate(request.topic_data, 1):
            self._name(topic)
            if count % PARTITIONS_AT_ONCE == 0:
                yield
        return (yield from self._handle_in_turns(context, request))

    def _handle_in_turns(self, context: RequestContext, request: ProduceRequest) -> Work:
        """As `handle`. Each append looks anew who leads; a connection that goes away ends it between two of them."""
        entries: list[AppendEntry] = []
        refused: dict[int, PartitionAppendResult] = {}
        yield from self._collect_entries_in_turns(request, entries, refused)
        preparer = self._preparer
        pending: dict[Partition, PartitionAppendResult] = {}
        if preparer is not None and (yield from preparer.is_needed_in_turns(entries)):
            if preparer.has_room(entries):
                entries = yield self._check(preparer, context, entries)
                results = yield from self._append_many(context, request, entries, pending)
            else:
                results = yield from _refuse_many(entries)
        else:
            results = yield from self._append_many(context, request, entries, pending)
        if request.acks == NO_ACKS:
            _raise_unanswered(refused.values(), results)
            return None
        if refused:
            results = yield from _merge_in_turns(results, refused)
        if not pending:
            return (yield from self._response_in_turns(results, context))
        _drop_records(request)
        return self._park_many(results, pending, context, request)

    def _append_many(
        self,
        context: RequestContext,
        request: ProduceRequest,
        entries: list[AppendEntry],
        pending: dict[Partition, PartitionAppendResult],
    ) -> Generator[None, None, list[PartitionAppendResult]]:
        """The results in the order of the entries; `pending` gets those that wait for their acks."""
        is_zstd_allowed = context.api_version >= ZSTD_VERSION_MIN
        results: list[PartitionAppendResult] = []
        for piece in _pieces(entries):
            appended, waiting = self._produce_path.append_now(piece, request.acks, self._clock.now_ms(), is_zstd_allowed)
            results += appended
            pending |= waiting or {}
            yield
        return results

    def _park_many(
        self,
        results: list[PartitionAppendResult],
        pending: dict[Partition, PartitionAppendResult],
        context: RequestContext,
        request: ProduceRequest,
    ) -> Deferred:
        deferred = Deferred()

        def answer(results: list[PartitionAppendResult]) -> None:
            deferred.complete(self._response_in_turns(results, context))

        operation = self._produce_path.park(results, pending, request.acks, request.timeout_ms, answer)
        if operation is not None:
            deferred.on_abandon = lambda: self._purgatory.cancel(operation)
        return deferred

    def _response_in_turns(self, results: list[PartitionAppendResult], context: RequestContext) -> Generator[None, None, ProduceResponse]:
        answer = self._answers.begin(context)
        for position, result in enumerate(results, 1):
            answer.add(result)
            if position % PARTITIONS_AT_ONCE == 0:
                yield
        return answer.response

    # -- the request ---------------------------------------------------------------------------------------------------

    def _collect_entries(self, request: ProduceRequest, entries: list[AppendEntry], refused: dict[int, PartitionAppendResult]) -> bool:
        """Fill `entries` with what may be appended and `refused` with the answers for the rest, by place in the request. False, and
        nothing is filled, for a request that is to go in turns."""
        topics = request.topic_data
        if len(topics) == 1 and len(topics[0].partition_data) == 1 and request.acks in VALID_ACKS:  # no need to look for a second
            data = topics[0].partition_data[0]
            refusal = self._find_refusal(request, topics[0].name, data)
            if refusal is None:
                entries.append((topics[0].name, data.index, data.records))  # type: ignore[arg-type]
            else:
                refused[0] = _refusal(topics[0].name, data.index, refusal)
            return True
        if _is_long(request):
            return False
        for _ in self._collect_entries_in_turns(request, entries, refused):
            pass
        return True

    def _collect_entries_in_turns(
        self, request: ProduceRequest, entries: list[AppendEntry], refused: dict[int, PartitionAppendResult]
    ) -> Generator[None, None, None]:
        position = 0
        positions: dict[tuple[str, int], int] = {}
        error: ErrorCode | None = None if request.acks in VALID_ACKS else ErrorCode.INVALID_REQUIRED_ACKS
        for topic in request.topic_data:
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
                if position % PARTITIONS_AT_ONCE == 0:
                    yield
        if len(entries) + len(refused) != position:  # a first of two was taken before its second came
            yield from _without_twice_named(entries, refused)

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


def _is_long(request: ProduceRequest) -> bool:
    """Whether its partitions are too many, or hold too much, to be appended in one piece. What is in the shared receive buffer is short
    enough, and gone at the first yield."""
    count = size_bytes = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            count += 1
            if data.records is not None:
                size_bytes += len(data.records)
                if (count > PARTITIONS_AT_ONCE or (size_bytes > BYTES_AT_ONCE and count > 1)) and has_own_buffer(data.records):
                    return True
            elif count > SCRATCH_SIZE:
                return True
    return False


def _drop_records(request: ProduceRequest) -> None:
    """Let go of the frame of a request that is kept while it waits for its acks: all is in the log, and the frame's buffer is taken for
    the next one (ProduceRequest.clearPartitionRecords)."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None


def _pieces(entries: list[AppendEntry]) -> Iterator[list[AppendEntry]]:
    """The entries in runs that are appended without a yield."""
    piece: list[AppendEntry] = []
    size_bytes = 0
    for entry in entries:
        piece.append(entry)
        size_bytes += len(entry[2])
        if len(piece) == PARTITIONS_PER_PIECE or size_bytes >= BYTES_PER_PIECE:
            yield piece
            piece, size_bytes = [], 0
    if piece:
        yield piece


def error_response(request: ProduceRequest, error: KafkaError) -> Any:
    """The error for every partition. With acks=0 nobody reads it: DecodeError closes the connection."""
    if request.acks == NO_ACKS:
        raise DecodeError(f"acks=0 and {error.code.name}")
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: ProduceRequest, error: KafkaError) -> Generator[None, None, ProduceResponse]:
    response = ProduceResponse()
    pace = Pace()
    for topic in request.topic_data:
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[])
        response.responses.append(answer)
        for data in topic.partition_data:
            answer.partition_responses.append(PartitionProduceResponse(index=data.index, error_code=error.code, base_offset=-1))
            if pace.is_due():
                yield
        if pace.is_due():
            yield
    return response


def _raise_unanswered(refused: Iterable[PartitionAppendResult], results: Iterable[PartitionAppendResult]) -> None:
    """With acks=0 the client can't be told of an error but by closing its connection, so that it refreshes its metadata."""
    for result in chain(refused, results):
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


def _merge_in_turns(
    appended: list[PartitionAppendResult], refused: dict[int, PartitionAppendResult]
) -> Generator[None, None, list[PartitionAppendResult]]:
    rest = iter(appended)
    merged: list[PartitionAppendResult] = []
    for position in range(len(appended) + len(refused)):
        merged.append(refused[position] if position in refused else next(rest))
        if position % PARTITIONS_AT_ONCE == 0:
            yield
    return merged


def _refuse_many(entries: list[AppendEntry]) -> Generator[None, None, list[PartitionAppendResult]]:
    results: list[PartitionAppendResult] = []
    for topic, index, _ in entries:
        results.append(_refusal(topic, index, ErrorCode.REQUEST_TIMED_OUT))
        if len(results) % PARTITIONS_AT_ONCE == 0:
            yield
    return results


def _without_twice_named(entries: list[AppendEntry], refused: Mapping[int, PartitionAppendResult]) -> Generator[None, None, None]:
    """Take out of the entries what another place of the request names too."""
    twice: dict[tuple[str, int], None] = {}
    for position, result in enumerate(refused.values(), 1):
        twice[result.topic, result.partition] = None
        if position % PARTITIONS_AT_ONCE == 0:
            yield
    kept: list[AppendEntry] = []
    for position, entry in enumerate(entries, 1):
        if (entry[0], entry[1]) not in twice:
            kept.append(entry)
        if position % PARTITIONS_AT_ONCE == 0:
            yield
    entries[:] = kept
