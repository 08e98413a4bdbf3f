"""Produce: append record batches to partitions led here.

Serves v3–v12.

Behaviour:
- One batch for each partition. acks=0 is never answered; any error then closes the connection, which is all a client notices.
- acks other than -1, 0, 1: INVALID_REQUIRED_ACKS for every partition.
- A partition named twice gets INVALID_REQUEST and nothing appended. Kafka silently lets the last one win.
- Internal topics: INVALID_TOPIC_EXCEPTION, for every client id (Kafka lets `__admin_client` through).
- A transactional batch without a transactional id fails the whole request with TRANSACTIONAL_ID_AUTHORIZATION_FAILED; with one
  it gets INVALID_TXN_STATE, as from a partition that was never added to the transaction.
- An unexpected failure is raised, never answered: dispatch closes the connection. After UNKNOWN_SERVER_ERROR the Java client
  gives an idempotent batch new sequence numbers and so duplicates it (KAFKA-14034).

Version notes: v5 log_start_offset. v7 zstd. v8 record_errors and error_message. v10 the current leader and its endpoint with
NOT_LEADER_OR_FOLLOWER (KIP-951).

Not done: transactions, quotas, authorisation; v13 (topic ids).
"""

from __future__ import annotations

from broker.context import Handler, RequestContext, Services
from broker.deferred import Deferred
from broker.metadata.image import INTERNAL_TOPICS
from broker.replication.delayed_produce import PartitionAppendResult
from broker.replication.replica_manager import AppendEntry
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

NO_ACKS = 0
VALID_ACKS = frozenset({-1, NO_ACKS, 1})
ZSTD_VERSION_MIN = 7
CURRENT_LEADER_VERSION_MIN = 10
ATTRIBUTES_LOW_BYTE = 22  # position in a batch: the attributes are an int16 at 21
TRANSACTIONAL_BIT = 0x10


def build(services: Services) -> Handler:
    return ProduceHandler(services).handle


class ProduceHandler:
    """Keeps nothing between requests."""

    def __init__(self, services: Services) -> None:
        self._replica_manager = services.replica_manager
        self._metadata = services.metadata

    def handle(self, context: RequestContext, request: ProduceRequest) -> ProduceResponse | Deferred | None:
        entries: list[AppendEntry] = []
        refused: dict[int, PartitionAppendResult] = {}
        self._sort_out(request, entries, refused)
        version, listener_name = context.api_version, context.listener_name
        if request.acks == NO_ACKS:
            self._append_unanswered(request, entries, refused, version)
            return None
        deferred = Deferred()

        def answer(results: list[PartitionAppendResult]) -> None:
            deferred.complete(self._response(_merge(results, refused) if refused else results, version, listener_name))

        replica_manager = self._replica_manager
        operation = replica_manager.append(
            entries, acks=request.acks, timeout_ms=request.timeout_ms, on_done=answer, is_zstd_allowed=version >= ZSTD_VERSION_MIN
        )
        if operation is None:
            return deferred.value  # type: ignore[no-any-return]
        deferred.on_abandon = lambda: replica_manager.produce_purgatory.cancel(operation)
        return deferred

    def _sort_out(self, request: ProduceRequest, entries: list[AppendEntry], refused: dict[int, PartitionAppendResult]) -> None:
        """Fill `entries` with what may be appended and `refused` with the answers for the rest, by place in the request."""
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

    def _append_unanswered(
        self, request: ProduceRequest, entries: list[AppendEntry], refused: dict[int, PartitionAppendResult], version: int
    ) -> None:
        failed = list(refused.values())

        def note(results: list[PartitionAppendResult]) -> None:
            failed.extend(result for result in results if result.error_code is not ErrorCode.NONE)

        self._replica_manager.append(entries, acks=NO_ACKS, timeout_ms=0, on_done=note, is_zstd_allowed=version >= ZSTD_VERSION_MIN)
        if failed:
            first = failed[0]
            raise DecodeError(f"acks=0 and {first.error_code.name} for {first.topic}-{first.partition}")

    def _response(self, results: list[PartitionAppendResult], version: int, listener_name: str) -> ProduceResponse:
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
                self._explain(result, partition, response, version, listener_name)
            topic.partition_responses.append(partition)
        return response

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


def _refusal(topic: str, partition: int, error_code: ErrorCode) -> PartitionAppendResult:
    result = PartitionAppendResult(topic, partition)
    result.fail(error_code, REFUSAL_MESSAGES.get(error_code))
    return result


REFUSAL_MESSAGES = {
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1",
    ErrorCode.INVALID_REQUEST: "The partition is named more than once in the request",
    ErrorCode.INVALID_RECORD: "There is no record batch for the partition",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Clients may not write to internal topics",
    ErrorCode.INVALID_TXN_STATE: "The partition is not part of a transaction of this producer",
}


def _merge(appended: list[PartitionAppendResult], refused: dict[int, PartitionAppendResult]) -> list[PartitionAppendResult]:
    """All answers in the request's order."""
    rest = iter(appended)
    return [refused[position] if position in refused else next(rest) for position in range(len(appended) + len(refused))]
