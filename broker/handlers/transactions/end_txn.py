"""EndTxn (key 26): commit or abort a transaction. Serves v0–v5.

Behaviour:
- Answered when the outcome is committed in `__transaction_state`. The markers are written afterwards. While they are, another end or a new
producer id is CONCURRENT_TRANSACTIONS.
- A retry of an end that was decided is answered as the first one.
- TRANSACTIONAL_ID_AUTHORIZATION_FAILED without WRITE on the id.
- INVALID_REQUEST for an empty transactional id; INVALID_PRODUCER_ID_MAPPING for an unknown one, or another producer id; PRODUCER_FENCED;
INVALID_TXN_STATE; NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS.

Version notes: v2 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before. v5 follows the rules of transaction version 2: the end bumps the epoch,
and the answer has the producer id and epoch of the next transaction (KIP-890).

Source: KafkaApis.handleEndTxnRequest, TransactionVersion.transactionVersionForEndTxn.
"""

from __future__ import annotations

from typing import Any

from broker.groups.replies import mapped
from broker.handlers.services import Handler, Services
from broker.network.context import RequestContext
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from broker.transactions.answers import ProducerAnswer
from broker.transactions.end_transaction import EndTransaction
from broker.transactions.transaction import EPOCH_BUMP_VERSION, ProducerIdAndEpoch
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

VERSION_PRODUCER_FENCED = 2
VERSION_EPOCH_BUMP = 5
CLIENT_TRANSACTION_VERSION = 0
"""Of a client below v5."""


def build(services: Services) -> Handler:
    coordinator = services.transaction_coordinator
    assert coordinator is not None, "the API is served where there is a coordinator"

    def handle(context: RequestContext, request: EndTxnRequest) -> Any:
        refusal = context.access.refusal(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        if refusal:
            return EndTxnResponse(error_code=refusal)
        version = EPOCH_BUMP_VERSION if context.api_version >= VERSION_EPOCH_BUMP else CLIENT_TRANSACTION_VERSION
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        ended = coordinator.end_transaction(request.transactional_id, EndTransaction(producer, request.committed, version))
        if ended.is_done:
            return _response(ended.take(), context.api_version)
        return mapped(ended, lambda answer: _response(answer, context.api_version))

    return handle


def _response(answer: ProducerAnswer, version: int) -> EndTxnResponse:
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and version < VERSION_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=error, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)
