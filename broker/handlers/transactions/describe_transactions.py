"""DescribeTransactions (key 65): the state of transactional ids that this broker coordinates. Serves v0.

Behaviour:
- Each id is answered by itself, as far as its state is committed. The partitions of a transaction that is being completed are those whose
marker is not written yet. CompleteCommit and CompleteAbort keep the start time of the last transaction.
- TRANSACTIONAL_ID_AUTHORIZATION_FAILED without DESCRIBE on an id. Topics that the client may not DESCRIBE are left out.
- TRANSACTIONAL_ID_NOT_FOUND for an id that is not known, INVALID_REQUEST for an empty one; NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and
COORDINATOR_LOAD_IN_PROGRESS.
- An id named twice is answered twice, as by Kafka. Ids that do not fit into an answer's size are POLICY_VIOLATION.

Source: KafkaApis.handleDescribeTransactionsRequest, TransactionCoordinator.handleDescribeTransactions (KIP-664).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import IDS_AT_ONCE, Work, at_once_or_in_turns, make_in_turns
from broker.network.answer_size import AnswerSize
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import KafkaError
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from broker.transactions.coordinator import TransactionCoordinator

PARTITION_BYTES = 4
TOPIC_BYTES = 64  # of a topic's name and sizes in an answer, roughly


def build(services: Services) -> Handler:
    coordinator = services.transaction_coordinator
    assert coordinator is not None, "the API is served where there is a coordinator"

    def handle(context: RequestContext, request: DescribeTransactionsRequest) -> Any:
        return at_once_or_in_turns(_answer(coordinator, context.access, request), IDS_AT_ONCE)

    return handle


def _answer(coordinator: TransactionCoordinator, access: Access, request: DescribeTransactionsRequest) -> Work:
    states: list[TransactionState] = []
    size = AnswerSize()
    for transactional_id in request.transactional_ids:
        try:
            access.require(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
            state = yield from _describe(coordinator, access, transactional_id, size)
        except KafkaError as error:
            state = TransactionState(error_code=error.code, transactional_id=transactional_id)
        states.append(state)
        yield
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(
    coordinator: TransactionCoordinator, access: Access, transactional_id: str, size: AnswerSize
) -> Generator[None, None, TransactionState]:
    described = coordinator.describe(transactional_id)
    size.take(sum(TOPIC_BYTES + PARTITION_BYTES * len(indexes) for indexes in described.partitions.values()))
    topics: list[TopicData] = []
    for topic, indexes in described.partitions.items():
        if access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            topics.append(TopicData(topic=topic, partitions=sorted(indexes)))
        yield
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=described.state,
        transaction_timeout_ms=described.timeout_ms,
        transaction_start_time_ms=described.start_ms,
        producer_id=described.producer_id,
        producer_epoch=described.producer_epoch,
        topics=topics,
    )


def error_response(request: DescribeTransactionsRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: DescribeTransactionsRequest, error: KafkaError) -> Work:
    states = yield from make_in_turns(
        lambda transactional_id: TransactionState(error_code=error.code, transactional_id=transactional_id), request.transactional_ids
    )
    return DescribeTransactionsResponse(transaction_states=states)
