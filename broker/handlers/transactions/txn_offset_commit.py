"""TxnOffsetCommit (key 28): commit a group's offsets as part of a transaction. Serves v0–v5.

Behaviour:
- Answered when the offsets are committed in `__consumer_offsets`. They count when the transaction is committed.
- The first commit of a transaction waits for the transaction's coordinator: it adds the group's partition (v5), or says whether it is part
of the transaction (below, unless transaction.partition.verification.enable=false). Later ones ask no coordinator.
- Without WRITE on the transactional id all partitions are TRANSACTIONAL_ID_AUTHORIZATION_FAILED, without READ on the group
GROUP_AUTHORIZATION_FAILED; those of a topic without READ on it are TOPIC_AUTHORIZATION_FAILED.
- Topics and partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION each, the others are committed all the same. If none exists, nobody
is asked. An error of the group or of the transaction is set for all other partitions.
- Many partitions are committed in turns, PARTITIONS_PER_BATCH at a time.
- What the coordinator of the transaction refuses: INVALID_TXN_STATE, TRANSACTION_ABORTABLE, INVALID_PRODUCER_EPOCH,
INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR. If it did not answer, that is
COORDINATOR_LOAD_IN_PROGRESS, which clients retry without looking for another coordinator.

Version notes: v2 COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE before (KAFKA-7296). v3 generation, member and instance (KIP-447).
v4 TRANSACTION_ABORTABLE, INVALID_TXN_STATE before. v5 no AddOffsetsToTxn comes before (KIP-890).

Source: KafkaApis.handleTxnOffsetCommitRequest, GroupCoordinatorService.commitTransactionalOffsets.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from broker.groups.coordinator import transactional_commit_error_response
from broker.groups.replies import mapped
from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.turns import Work, at_once_or_in_turns
from broker.metadata.image import GROUP_METADATA_TOPIC
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.transactions.partition_additions import PartitionAdditions, Question, Refusals, operation_of_txn_offset_commit
from broker.transactions.transaction import ProducerIdAndEpoch
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from storage.verification import VerificationGuard

PARTITIONS_PER_BATCH = 1_000
VERSION_LOADING = 2
CLIENT_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""What the client is told of a question about its group's partition, which it does not know (CoordinatorOperationExceptionHelper)."""


def build(services: Services) -> Handler:
    additions = services.partition_additions
    assert additions is not None, "the API is served where coordinators can be asked"
    return TxnOffsetCommitHandler(services, additions).handle


class TxnOffsetCommitHandler:
    """Stateless between requests."""

    def __init__(self, services: Services, additions: PartitionAdditions) -> None:
        self._coordinator = services.group_coordinator
        self._metadata = services.metadata
        self._additions = additions
        self._timeout_ms = services.config.request_timeout_ms

    def handle(self, context: RequestContext, request: TxnOffsetCommitRequest) -> Any:
        context.access.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.access.require(AclOperation.READ, ResourceType.GROUP, request.group_id)
        return at_once_or_in_turns(self._commit(context.api_version, context.access, request))

    def _commit(self, version: int, access: Access, request: TxnOffsetCommitRequest) -> Work:
        answer = _Answer(version)
        yield from self._take_unknown(request, access, answer)
        if not request.topics:
            return answer.response
        is_required = self._additions.is_verification_enabled()
        try:
            guard = yield from self._verify(version, request, is_required=is_required)
        except KafkaError as error:
            answer.extend(transactional_commit_error_response(request, error.code))
            return answer.response
        outcome: TxnOffsetCommitResponse | Deferred | None = None
        for batch in _batches(request):
            if outcome is not None:
                answer.extend((yield outcome) if isinstance(outcome, Deferred) else outcome)
                yield
            try:
                outcome = self._coordinator.commit_transactional_offsets(batch, guard, is_verification_required=is_required)
            except KafkaError as error:
                outcome = transactional_commit_error_response(batch, error.code)
        return mapped(outcome, answer.extend) if isinstance(outcome, Deferred) else answer.extend(outcome)

    def _verify(self, version: int, request: TxnOffsetCommitRequest, *, is_required: bool) -> Generator[Any, Any, VerificationGuard | None]:
        """What the commit has to show. KafkaError: why it may not be appended."""
        operation = operation_of_txn_offset_commit(version)
        if not operation.supports_epoch_bump and not is_required:
            return None
        guard = self._coordinator.start_verification(request, supports_epoch_bump=operation.supports_epoch_bump)
        if guard is None:
            return None
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        partitions = {GROUP_METADATA_TOPIC: {self._coordinator.partition_for(request.group_id)}}
        refusals: Refusals = yield self._additions.ask(
            Question(request.transactional_id, producer, partitions, operation, self._timeout_ms)
        )
        for error in refusals.values():
            raise KafkaError(CLIENT_ERRORS.get(error, error))
        return guard

    def _take_unknown(self, request: TxnOffsetCommitRequest, access: Access, answer: _Answer) -> Generator[None, None, None]:
        """Move topics and partitions that do not exist, and topics that the client may not READ, from the request to the answer."""
        known = []
        for topic in request.topics:
            error = access.refusal(AclOperation.READ, ResourceType.TOPIC, topic.name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            image = self._metadata.find_topic(topic.name) if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None
            count = 0 if image is None else len(image.partitions)
            found = []
            for partition in topic.partitions:
                if 0 <= partition.partition_index < count:
                    found.append(partition)
                else:
                    answer.add(topic.name, partition.partition_index, error)
                yield
            topic.partitions = found
            if found:
                known.append(topic)
            yield
        request.topics = known


class _Answer:
    """A response with one entry for each topic, in the codes that the version knows."""

    def __init__(self, version: int) -> None:
        self.response = TxnOffsetCommitResponse(topics=[])
        self._knows_loading = version >= VERSION_LOADING
        self._topics: dict[str, TxnOffsetCommitResponseTopic] = {}

    def add(self, name: str, index: int, error: int) -> None:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = TxnOffsetCommitResponseTopic(name=name, partitions=[])
            self.response.topics.append(topic)
        if error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and not self._knows_loading:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        topic.partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=error))

    def extend(self, response: TxnOffsetCommitResponse | None) -> TxnOffsetCommitResponse:
        for topic in () if response is None else response.topics:
            for partition in topic.partitions:
                self.add(topic.name, partition.partition_index, partition.error_code)
        return self.response


def _batches(request: TxnOffsetCommitRequest) -> Iterator[TxnOffsetCommitRequest]:
    """The request in parts of PARTITIONS_PER_BATCH partitions at most; nearly always itself."""
    if sum(len(topic.partitions) for topic in request.topics) <= PARTITIONS_PER_BATCH:
        yield request
        return
    for topic in request.topics:
        for start in range(0, len(topic.partitions), PARTITIONS_PER_BATCH):
            partitions = topic.partitions[start : start + PARTITIONS_PER_BATCH]
            yield TxnOffsetCommitRequest(
                transactional_id=request.transactional_id,
                group_id=request.group_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                generation_id=request.generation_id,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                topics=[TxnOffsetCommitRequestTopic(name=topic.name, partitions=partitions)],
            )


def error_response(request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    return transactional_commit_error_response(request, error.code)
