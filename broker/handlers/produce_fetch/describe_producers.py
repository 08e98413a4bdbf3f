"""DescribeProducers (key 61): the idempotent and transactional producers that a replica remembers. Serves v0.

Behaviour:
- Every replica answers, leader or not, with the producers in its producer state: their last sequence and time, and the start of an open
transaction.
- INVALID_TOPIC_EXCEPTION and UNKNOWN_TOPIC_OR_PARTITION for each partition of a topic; NOT_LEADER_OR_FOLLOWER where this broker has no
replica; KAFKA_STORAGE_ERROR where its log directory has failed. Producers that do not fit into an answer's size: POLICY_VIOLATION.

Source: KafkaApis.handleDescribeProducersRequest, UnifiedLog.activeProducers (KIP-664).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns
from broker.metadata.topic_names import validate_name
from broker.network.answer_size import AnswerSize
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from storage.producer_state_entry import ProducerStateEntry

PRODUCER_BYTES = 41
"""Of one producer in an answer."""

NO_OFFSET = -1

UNKNOWN_TOPIC = "This server does not host this topic-partition."


def build(services: Services) -> Handler:
    def handle(context: RequestContext, request: DescribeProducersRequest) -> Any:
        return at_once_or_in_turns(_answer(services, context.access, request))

    return handle


def _answer(services: Services, access: Access, request: DescribeProducersRequest) -> Work:
    response = DescribeProducersResponse(topics=[])
    size = AnswerSize()
    for topic in request.topics:
        described = TopicResponse(name=topic.name, partitions=[])
        response.topics.append(described)
        error = _find_error(services, access, topic.name)
        for index in topic.partition_indexes:
            if error is None:
                described.partitions.append((yield from _describe(services, topic.name, index, size)))
            else:
                failed = PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message or None)
                described.partitions.append(failed)
            yield
        yield
    return response


def _find_error(services: Services, access: Access, topic: str) -> KafkaError | None:
    try:
        validate_name(topic)
        access.require(AclOperation.READ, ResourceType.TOPIC, topic)
    except KafkaError as error:
        return error
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC) if services.metadata.find_topic(topic) is None else None


def _describe(services: Services, topic: str, index: int, size: AnswerSize) -> Generator[None, None, PartitionResponse]:
    described = PartitionResponse(partition_index=index, active_producers=[])
    try:
        partition = services.replica_manager.get_partition(topic, index)
        known = partition.log.producers.producers
        size.take(PRODUCER_BYTES * len(known))
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message or None)
    for producer in list(known.values()):
        described.active_producers.append(_state(producer))
        yield
    return described


def _state(producer: ProducerStateEntry) -> ProducerState:
    first_offset = producer.current_transaction_first_offset
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=NO_OFFSET if first_offset is None else first_offset,
    )
