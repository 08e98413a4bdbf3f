"""AddPartitionsToTxn (key 24): add partitions to a transaction, or verify that they are part of it. Serves v0–v5.

Behaviour:
- A client (v0–v3) adds partitions to its transaction. A broker (v4, v5) asks for many transactions at once, each to be added to or verified
(verify_only). The answer comes when the last one is decided: what is added is committed then.
- A client needs WRITE on its transactional id, else each partition is TRANSACTIONAL_ID_AUTHORIZATION_FAILED; a broker CLUSTER_ACTION on the
cluster, else the request is CLUSTER_AUTHORIZATION_FAILED.
- A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; for a client, one of an internal topic, or of a topic without WRITE on it,
is TOPIC_AUTHORIZATION_FAILED. Then the others of its transaction are OPERATION_NOT_ATTEMPTED, and nothing is added.
- While the markers of the transaction before are being written, the request waits for them, for add.partitions.to.txn.retry.backoff.max.ms
at most; then it is CONCURRENT_TRANSACTIONS. Kafka answers that at once.
- INVALID_PRODUCER_ID_MAPPING; PRODUCER_FENCED; INVALID_REQUEST for an empty transactional id; NOT_COORDINATOR and
COORDINATOR_LOAD_IN_PROGRESS. A partition to be verified that is not part of the transaction is TRANSACTION_ABORTABLE.

Version notes: v2 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before. v4 many transactions, and additions by the rules of transaction version 2
(KIP-890).

Source: KafkaApis.handleAddPartitionsToTxnRequest.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.turns import IDS_AT_ONCE, Work, at_once_or_in_turns
from broker.metadata.image import INTERNAL_TOPICS
from broker.metadata.metadata_cache import MetadataCache
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.transactions.add_partitions import AddPartitions
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.transaction import EPOCH_BUMP_VERSION, ProducerIdAndEpoch
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

VERSION_OF_BROKERS = 4
VERSION_PRODUCER_FENCED = 2
CLIENT_TRANSACTION_VERSION = 0  # of a client that adds its partitions itself

Verdict = ErrorCode | dict[str, dict[int, ErrorCode]]
"""One for all partitions, or one for each."""


def build(services: Services) -> Handler:
    coordinator = services.transaction_coordinator
    assert coordinator is not None, "the API is served where there is a coordinator"
    return AddPartitionsToTxnHandler(coordinator, services.metadata, services.config.add_partitions_to_txn_retry_backoff_max_ms).handle


class AddPartitionsToTxnHandler:
    """Stateless between requests."""

    def __init__(self, coordinator: TransactionCoordinator, metadata: MetadataCache, wait_max_ms: int) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._wait_max_ms = wait_max_ms

    def handle(self, context: RequestContext, request: AddPartitionsToTxnRequest) -> Any:
        if context.api_version >= VERSION_OF_BROKERS:
            context.access.require_on_cluster((AclOperation.CLUSTER_ACTION,))
        else:
            transactional_id = request.v3_and_below_transactional_id
            context.access.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        return at_once_or_in_turns(self._answer(context.api_version, context.access, request), IDS_AT_ONCE)

    def _answer(self, version: int, access: Access, request: AddPartitionsToTxnRequest) -> Work:
        """All transactions are begun before one is waited for."""
        is_of_broker = version >= VERSION_OF_BROKERS
        begun: list[_Begun] = []
        for transaction in request.transactions if is_of_broker else [_of_client(request)]:
            partitions, refused = yield from self._find(transaction.topics, None if is_of_broker else access)
            outcome = refused if refused is not None else self._begin(transaction, partitions, version)
            begun.append(_Begun(transaction, outcome))
            yield
        response = AddPartitionsToTxnResponse(results_by_transaction=[], results_by_topic_v3_and_below=[])
        for transaction, outcome in begun:
            verdict = (yield from _awaited(outcome)) if isinstance(outcome, Deferred) else outcome
            if verdict is ErrorCode.PRODUCER_FENCED and version < VERSION_PRODUCER_FENCED:
                verdict = ErrorCode.INVALID_PRODUCER_EPOCH
            results = yield from _results(transaction.topics, verdict)
            if is_of_broker:
                response.results_by_transaction.append(
                    AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=results)
                )
            else:
                response.results_by_topic_v3_and_below = results
        return response

    def _find(
        self, topics: list[AddPartitionsToTxnTopic], access: Access | None
    ) -> Generator[None, None, tuple[dict[str, set[int]], Verdict | None]]:
        """The partitions, and if some cannot be added, what all are answered. `access` is the client's; None for a broker, which asks for
        clients that it has checked."""
        found: dict[str, set[int]] = {}
        is_any_refused = False
        verdict: dict[str, dict[int, ErrorCode]] = {}
        for topic in topics:
            is_forbidden = access is not None and (
                topic.name in INTERNAL_TOPICS or not access.allows(AclOperation.WRITE, ResourceType.TOPIC, topic.name)
            )
            for index in topic.partitions:
                if is_forbidden:
                    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif self._metadata.find_partition(topic.name, index) is None:
                    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    error = ErrorCode.OPERATION_NOT_ATTEMPTED
                is_any_refused = is_any_refused or error is not ErrorCode.OPERATION_NOT_ATTEMPTED
                verdict.setdefault(topic.name, {})[index] = error
                found.setdefault(topic.name, set()).add(index)
                yield
        return found, verdict if is_any_refused else None

    def _begin(self, transaction: AddPartitionsToTxnTransaction, partitions: dict[str, set[int]], version: int) -> Verdict | Deferred:
        transactional_id = transaction.transactional_id
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
        try:
            if transaction.verify_only:
                return self._coordinator.verify_partitions(transactional_id, producer, partitions)
            transaction_version = EPOCH_BUMP_VERSION if version >= VERSION_OF_BROKERS else CLIENT_TRANSACTION_VERSION
            request = AddPartitions(producer, partitions, transaction_version)
            return self._coordinator.add_partitions(transactional_id, request, self._wait_max_ms)
        except KafkaError as error:
            return error.code


class _Begun(NamedTuple):
    transaction: AddPartitionsToTxnTransaction
    outcome: Verdict | Deferred


def _of_client(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _awaited(outcome: Deferred) -> Generator[Any, Any, ErrorCode]:
    try:
        error: ErrorCode = outcome.take() if outcome.is_done else (yield outcome)
    except KafkaError as failed:
        return failed.code
    return error


def _results(topics: list[AddPartitionsToTxnTopic], verdict: Verdict) -> Generator[None, None, list[AddPartitionsToTxnTopicResult]]:
    results = []
    for topic in topics:
        answered = AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=[])
        results.append(answered)
        for index in topic.partitions:
            error = verdict if isinstance(verdict, ErrorCode) else verdict[topic.name][index]
            answered.results_by_partition.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error))
            yield
        yield
    return results


def error_response(request: AddPartitionsToTxnRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: AddPartitionsToTxnRequest, error: KafkaError) -> Work:
    """A broker gets one error for its whole request, a client one for each partition."""
    results = yield from _results(request.v3_and_below_topics, error.code)
    return AddPartitionsToTxnResponse(error_code=error.code, results_by_topic_v3_and_below=results)
