"""InitProducerId (key 22): a producer id for an idempotent or transactional producer. Serves v0–v5, and v6 with
unstable.api.versions.enable=true.

Behaviour:
- Without transactional id: a unique producer id, with epoch 0. An id and epoch in the request are ignored, even negative ones.
- Ids come from blocks of 1,000; a request waits for the next block if none is left. COORDINATOR_LOAD_IN_PROGRESS, which clients retry,
while the controller cannot be reached.
- With a transactional id: the id's producer id, with an epoch that fences all producers before. An ongoing transaction is aborted first;
until its markers are written the answer is CONCURRENT_TRANSACTIONS. A producer that names its id and epoch goes on, unless another one was
initialized since: PRODUCER_FENCED.
- TRANSACTIONAL_ID_AUTHORIZATION_FAILED without WRITE on the transactional id, or TWO_PHASE_COMMIT where that is asked for. Without a
transactional id: CLUSTER_AUTHORIZATION_FAILED without IDEMPOTENT_WRITE on the cluster and WRITE on any topic.
- An empty transactional id, or -1 for one of producer id and epoch alone: INVALID_REQUEST. INVALID_TRANSACTION_TIMEOUT for a timeout below
1 or above transaction.max.timeout.ms. NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS.

Version notes: v3 the producer's present id and epoch (KIP-360). v4 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before. v6 two-phase commit
(KIP-939): a transaction without a timeout, TRANSACTIONAL_ID_AUTHORIZATION_FAILED unless transaction.two.phase.commit.enable=true;
keep_prepared_txn is UNSUPPORTED_VERSION, as in Kafka 4.3.

Source: KafkaApis.handleInitProducerIdRequest, TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

from typing import Any

from broker.groups.replies import mapped
from broker.handlers.services import Handler, Services
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.transactions.answers import ProducerAnswer
from broker.transactions.init_producer_id import InitProducerId
from broker.transactions.transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

VERSION_PRODUCER_FENCED = 4


def build(services: Services) -> Handler:
    producer_ids = services.controller.producer_ids
    coordinator = services.transaction_coordinator

    def handle(context: RequestContext, request: InitProducerIdRequest) -> Any:
        _check_rights(context.access, request)
        if not _is_well_formed(request):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            assert coordinator is not None, "the API is served where there is a coordinator"
            initialized = coordinator.init_producer_id(request.transactional_id, _for_coordinator(request))
            return mapped(initialized, lambda answer: _response(answer, context.api_version))
        producer_id = producer_ids.take()
        return _new_producer(producer_id) if isinstance(producer_id, int) else mapped(producer_id, _new_producer)

    return handle


def _check_rights(access: Access, request: InitProducerIdRequest) -> None:
    """Raises KafkaError TRANSACTIONAL_ID_AUTHORIZATION_FAILED or, for an id without transactions, CLUSTER_AUTHORIZATION_FAILED."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        access.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        if request.enable2_pc:
            access.require(AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not access.allows_on_cluster(AclOperation.IDEMPOTENT_WRITE, is_logged=False) and not access.allows_any(
        AclOperation.WRITE, ResourceType.TOPIC
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _new_producer(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _for_coordinator(request: InitProducerIdRequest) -> InitProducerId:
    expected = None if request.producer_id == NO_PRODUCER_ID else ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    return InitProducerId(request.transaction_timeout_ms, expected, request.enable2_pc, request.keep_prepared_txn)


def _response(answer: ProducerAnswer, version: int) -> InitProducerIdResponse:
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and version < VERSION_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=error, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)


def error_response(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


def _is_well_formed(request: InitProducerIdRequest) -> bool:
    if request.transactional_id == "":
        return False
    return (request.producer_id == NO_PRODUCER_ID) == (request.producer_epoch == NO_PRODUCER_EPOCH)
