"""Produce: append record batches to partitions led here.

Serves v3–v13.

Behaviour:
- One batch for each partition. acks=0 is never answered; any error then closes the connection, which is the only sign for the client.
- acks other than -1, 0, 1: INVALID_REQUIRED_ACKS for every partition.
- A partition named twice gets INVALID_REQUEST and nothing appended. Kafka silently lets the last one win.
- Internal topics: INVALID_TOPIC_EXCEPTION, for every client id (Kafka lets `__admin_client` through).
- TOPIC_AUTHORIZATION_FAILED for each partition of a topic without WRITE on it.
- A transactional batch without a transactional id, or without WRITE on it, fails the whole request with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED; with one it waits
for its transaction's coordinator, if the transaction is not open in the partition yet (transactional_produce.py).
- Batches whose records take long to check are checked in the worker process first; the connection's later requests wait.
- A request of many partitions, or of several large ones, is appended in turns: a batch is not divided; other requests run between batches.
- The answer names at most RECORD_ERRORS_PER_ANSWER refused records: a kilobyte can hold a thousand, and the answer would be a hundred times
as large as its request. Kafka names all.
- A client over its quota is answered at once, and then its connection is muted; with acks=0 too.
- An unexpected failure is raised, never answered: dispatch closes the connection. After UNKNOWN_SERVER_ERROR the Java client gives an
idempotent batch new sequence numbers and so duplicates it (KAFKA-14034).

Version notes: v5 log_start_offset. v7 zstd. v8 record_errors and error_message. v10 the current leader and its endpoint with
NOT_LEADER_OR_FOLLOWER (KIP-951). v11 TRANSACTION_ABORTABLE, INVALID_TXN_STATE before. v12 the broker adds the partition to the transaction
(KIP-890). v13 topics by their ids; an unknown one is UNKNOWN_TOPIC_ID for each partition (KIP-516).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from broker.handlers.produce_fetch.produce_answers import ProduceAnswers, unknown_name
from broker.handlers.produce_fetch.transactional_produce import TransactionalProduce
from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.turns import Work, at_once_or_in_turns
from broker.metadata.image import INTERNAL_TOPICS
from broker.network.context import RequestContext
from broker.observability.limited_log import LimitedLog
from broker.replication.batch_preparation import BatchPreparer, is_check_long
from broker.replication.delayed_produce import PartitionAppendResult
from broker.replication.produce_path import AppendEntry
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
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

if TYPE_CHECKING:
    from broker.handlers.produce_fetch.transactional_produce import Transactions
    from broker.replication.partition import Partition
    from broker.transactions.partition_additions import PartitionAdditions

log = logging.getLogger("barnabas.produce")

NO_ACKS = 0
VALID_ACKS = frozenset({-1, NO_ACKS, 1})
NAMED_VERSION_MAX = 12  # later versions have topic ids
ZSTD_VERSION_MIN = 7
ATTRIBUTES_LOW_BYTE = 22  # position in a batch: the attributes are an int16 at 21
TRANSACTIONAL_BIT = 0x10
PARTITIONS_AT_ONCE = 64
"""More go in turns: an append takes 7 to 20 µs."""
BYTES_AT_ONCE = 1024 * 1024  # of several partitions; a single batch is not divided, however large
PARTITIONS_PER_PIECE, BYTES_PER_PIECE = 16, 128 * 1024
NO_LIMIT = sys.maxsize

_WRITE, _TOPIC = AclOperation.WRITE, ResourceType.TOPIC
"""Read once: in Python 3.11 the look at an Enum's member takes longer than the decision."""


def build(services: Services) -> Handler:
    return ProduceHandler(services, services.partition_additions).handle


class ProduceHandler:
    """Stateless between requests, apart from ProduceAnswers' templates. Without `additions` (some tests) no transactional batch is
    appended."""

    def __init__(self, services: Services, additions: PartitionAdditions | None = None) -> None:
        self._produce_path = services.replica_manager.produce_path
        self._find_partition = self._produce_path.find_partition
        self._append_now = self._produce_path.append_now
        self._purgatory = services.replica_manager.produce_purgatory
        self._metadata = services.metadata
        self._preparer = None if services.worker is None else BatchPreparer(services.worker)
        self._transactional = None if additions is None else TransactionalProduce(additions, self._produce_path, services.clock)
        self._clock = services.clock
        self._answers = ProduceAnswers(services.metadata, LimitedLog(log, services.clock))

    def handle(self, context: RequestContext, request: ProduceRequest) -> Any:
        """Handle a request of a single partition without a transaction, which nearly all are; `_begin` handles any."""
        topics = request.topic_data
        if len(topics) != 1 or len(topics[0].partition_data) != 1 or request.transactional_id is not None:
            return self._begin(context, request)
        topic = topics[0]
        if context.api_version > NAMED_VERSION_MAX:
            self._name(topic)
        entry = self._make_entry(request, topic.name, topic.partition_data[0])
        result = entry[0]
        if not context.access.is_open and self._is_denied(context, topic):
            result.fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        pending = None
        if result.error_code is ErrorCode.NONE:
            if self._preparer is not None and is_check_long(entry):
                return self._begin(context, request)
            pending = self._append_now((entry,), request.acks, context.now_ms, context.api_version >= ZSTD_VERSION_MIN)
        return self._answer(context, request, [result], pending)

    def _begin(self, context: RequestContext, request: ProduceRequest) -> Any:
        """Handle a long request in turns. Any other is not interrupted before its records are appended or copied for their check: they
        may be in the shared receive buffer."""
        slots = _Slots()
        if not context.access.is_open and request.transactional_id is not None and _has_transactional_records(request):
            context.access.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        if _is_long(request):
            return self._handle_in_turns(context, request, slots)
        for topic in request.topic_data:
            self._fill(slots, context, request, topic, topic.partition_data)
        entries = slots.accepted()
        if self._transactional is not None and request.transactional_id is not None:
            answer = None
            if len(slots.results) == len(entries) == 1 and not self._is_check_long(entries):
                found = self._transactional.verify_at_once(request, context.api_version, entries[0])
                if isinstance(found, dict):
                    is_zstd_allowed = context.api_version >= ZSTD_VERSION_MIN
                    pending = self._append_now(entries, request.acks, context.now_ms, is_zstd_allowed, transactions=found)
                    return self._answer(context, request, slots.results, pending)
                answer = found
            return at_once_or_in_turns(self._verify_and_append(self._transactional, context, request, slots, answer), NO_LIMIT)
        if self._is_check_long(entries):
            return at_once_or_in_turns(self._check_and_append(context, request, slots, entries), NO_LIMIT)
        pending = self._append_now(entries, request.acks, context.now_ms, context.api_version >= ZSTD_VERSION_MIN)
        return self._answer(context, request, slots.results, pending)

    def _handle_in_turns(self, context: RequestContext, request: ProduceRequest, slots: _Slots) -> Work:
        """As `_begin`, in pieces. If the connection ends, the handling ends between two pieces."""
        for topic in request.topic_data:
            for start in range(0, len(topic.partition_data), PARTITIONS_AT_ONCE):
                self._fill(slots, context, request, topic, topic.partition_data[start : start + PARTITIONS_AT_ONCE])
                yield
            yield
        if self._transactional is not None and request.transactional_id is not None:
            return (yield from self._verify_and_append(self._transactional, context, request, slots))
        entries = slots.accepted()
        if self._is_check_long(entries):
            return (yield from self._check_and_append(context, request, slots, entries))
        return (yield from self._append_in_turns(context, request, slots, entries))

    def _verify_and_append(
        self,
        transactional: TransactionalProduce,
        context: RequestContext,
        request: ProduceRequest,
        slots: _Slots,
        answer: Deferred | None = None,
    ) -> Work:
        """Append once the coordinator of the transaction has answered, and then the worker process. With `answer` it was asked."""
        verified = yield from transactional.verify(request, context.api_version, slots.accepted(), answer)
        try:
            append = self._check_and_append if self._is_check_long(verified.entries) else self._append_in_turns
            return (yield from append(context, request, slots, verified.entries, verified.transactions))
        finally:
            transactional.release(verified)

    def _check_and_append(
        self,
        context: RequestContext,
        request: ProduceRequest,
        slots: _Slots,
        entries: list[AppendEntry],
        transactions: Transactions | None = None,
    ) -> Work:
        """Append once the worker process has checked the records."""
        assert self._preparer is not None, "a check is long where there is a worker"
        if self._preparer.has_room(entries):
            is_zstd_allowed = context.api_version >= ZSTD_VERSION_MIN
            count_time = None if context.charge is None else context.charge.add
            entries = yield self._preparer.prepare(entries, now_ms=context.now_ms, is_zstd_allowed=is_zstd_allowed, count_time=count_time)
        else:
            _refuse([result for result, _, _ in entries], ErrorCode.REQUEST_TIMED_OUT)
            entries = []
        return (yield from self._append_in_turns(context, request, slots, entries, transactions))

    def _append_in_turns(
        self,
        context: RequestContext,
        request: ProduceRequest,
        slots: _Slots,
        entries: list[AppendEntry],
        transactions: Transactions | None = None,
    ) -> Work:
        """Each append checks the leadership again, and what transactional batches have to show."""
        pending: dict[Partition, PartitionAppendResult] = {}
        is_zstd_allowed = context.api_version >= ZSTD_VERSION_MIN
        for piece in _pieces(entries):
            now_ms = self._clock.now_ms()
            pending |= self._append_now(piece, request.acks, now_ms, is_zstd_allowed, transactions=transactions) or {}
            yield
        return self._answer(context, request, slots.results, pending)

    def _fill(
        self, slots: _Slots, context: RequestContext, request: ProduceRequest, topic: TopicProduceData, piece: list[PartitionProduceData]
    ) -> None:
        """Add the slots of some partitions of a topic. A partition that is named twice is refused in both."""
        if context.api_version > NAMED_VERSION_MAX:
            self._name(topic)
        is_denied = not context.access.is_open and self._is_denied(context, topic)
        for data in piece:
            entry = self._make_entry(request, topic.name, data)
            result = entry[0]
            if is_denied:
                result.fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            first = slots.by_name.setdefault((topic.name, data.index), result)
            if first is not result and not is_denied:
                _refuse((first, result), ErrorCode.INVALID_REQUEST)
            slots.results.append(result)
            slots.entries.append(entry)

    def _is_check_long(self, entries: list[AppendEntry]) -> bool:
        return self._preparer is not None and any(map(is_check_long, entries))

    def _name(self, topic: TopicProduceData) -> None:
        """Set the topic's name from its id."""
        image = self._metadata.find_topic_by_id(topic.topic_id)
        topic.name = unknown_name(topic.topic_id) if image is None else image.name

    def _is_denied(self, context: RequestContext, topic: TopicProduceData) -> bool:
        """Whether the client may not write to the topic. Nobody is denied one that does not exist, given by its id."""
        if context.api_version > NAMED_VERSION_MAX and self._metadata.find_topic_by_id(topic.topic_id) is None:
            return False
        return not context.access.allows(_WRITE, _TOPIC, topic.name, count=len(topic.partition_data))

    def _make_entry(self, request: ProduceRequest, topic: str, data: PartitionProduceData) -> AppendEntry:
        """Returns the batch to append to one partition, with the result slot, which already has an error if the batch is refused."""
        result = PartitionAppendResult(topic, data.index)
        records = data.records
        if request.acks not in VALID_ACKS:
            _refuse((result,), ErrorCode.INVALID_REQUIRED_ACKS)
        elif records is None or len(records) <= ATTRIBUTES_LOW_BYTE:
            _refuse((result,), ErrorCode.INVALID_RECORD if self._exists(topic, data.index) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
            if request.transactional_id is None:
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            if self._transactional is None:
                _refuse((result,), ErrorCode.INVALID_TXN_STATE)
            elif self._is_internal(topic):
                _refuse((result,), ErrorCode.INVALID_TOPIC_EXCEPTION)
        elif topic in INTERNAL_TOPICS and self._is_internal(topic):
            _refuse((result,), ErrorCode.INVALID_TOPIC_EXCEPTION)
        return result, self._find_partition(topic, data.index), records  # type: ignore[return-value]

    def _is_internal(self, topic: str) -> bool:
        return topic in INTERNAL_TOPICS and self._metadata.find_topic(topic) is not None

    def _exists(self, topic: str, partition: int) -> bool:
        image = self._metadata.find_topic(topic)
        return image is not None and 0 <= partition < len(image.partitions)

    def _answer(
        self,
        context: RequestContext,
        request: ProduceRequest,
        results: list[PartitionAppendResult],
        pending: dict[Partition, PartitionAppendResult] | None,
    ) -> Any:
        """Returns the answer, or parks the request until the acks of `pending` are there."""
        if request.acks == NO_ACKS:
            _raise_unanswered(results)
            if context.charge is not None:
                context.charge.settle_produce(is_answered=False)
            return None
        if not pending:
            return self._answers.respond(results, context)
        _drop_records(request)
        context.connection.sends_at_once = True  # the producer has waited for the followers, the followers wait for its next records
        deferred = Deferred()

        def answer(results: list[PartitionAppendResult]) -> None:
            deferred.resolve(self._answers.respond, results, context)

        operation = self._produce_path.park(results, pending, request.acks, request.timeout_ms, answer)
        if operation is not None:
            deferred.on_abandon = lambda: self._purgatory.cancel(operation)
        return deferred


class _Slots:
    """The results of a request in its order, and what is to be appended for them."""

    __slots__ = ("by_name", "entries", "results")

    def __init__(self) -> None:
        self.results: list[PartitionAppendResult] = []
        self.entries: list[AppendEntry] = []
        self.by_name: dict[tuple[str, int], PartitionAppendResult] = {}

    def accepted(self) -> list[AppendEntry]:
        """The entries without an error."""
        return [entry for entry in self.entries if entry[0].error_code is ErrorCode.NONE]


def _has_transactional_records(request: ProduceRequest) -> bool:
    """Whether a batch is of a transaction (RequestUtils.hasTransactionalRecords)."""
    return any(
        data.records is not None and len(data.records) > ATTRIBUTES_LOW_BYTE and data.records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _is_long(request: ProduceRequest) -> bool:
    """Whether its partitions are too many, or too large, to be appended in one slice. A request in the shared receive buffer never is: a
    pause would overwrite it."""
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
    """Release the frame of a request that waits for its acks: its records are in the log, and the buffer can be used for the next frame
    (ProduceRequest.clearPartitionRecords)."""
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
    """Returns the error for every partition. With acks=0 there is no answer: DecodeError closes the connection."""
    if request.acks == NO_ACKS:
        raise DecodeError(f"acks=0 and {error.code.name}")
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: ProduceRequest, error: KafkaError) -> Generator[None, None, ProduceResponse]:
    response = ProduceResponse()
    for topic in request.topic_data:
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[])
        response.responses.append(answer)
        for data in topic.partition_data:
            answer.partition_responses.append(PartitionProduceResponse(index=data.index, error_code=error.code, base_offset=-1))
            yield
        yield
    return response


def _raise_unanswered(results: Iterable[PartitionAppendResult]) -> None:
    """With acks=0 the only report of an error is to close the connection; the client then refreshes its metadata."""
    for result in results:
        if result.error_code is not ErrorCode.NONE:
            raise DecodeError(f"acks=0 and {result.error_code.name} for {result.topic}-{result.partition}")


def _refuse(results: Iterable[PartitionAppendResult], error_code: ErrorCode) -> None:
    for result in results:
        result.fail(error_code, REFUSAL_MESSAGES[error_code])


REFUSAL_MESSAGES = {
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1",
    ErrorCode.INVALID_REQUEST: "The partition is named more than once in the request",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such topic or partition",
    ErrorCode.INVALID_RECORD: "There is no record batch for the partition",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Clients may not write to internal topics",
    ErrorCode.REQUEST_TIMED_OUT: "Too many batches wait for the check of their records; nothing was appended",
    ErrorCode.INVALID_TXN_STATE: "The partition is not part of a transaction of this producer",
}
