"""InitProducerId (key 22). Serves v0–v5.

Behaviour:
- Without transactional id: a unique producer id, with epoch 0. An id and epoch in the request are ignored, even negative ones.
- Ids come from blocks of 1,000; a request waits for the next block if none is left.
- An empty transactional id, or -1 for one of producer id and epoch alone: INVALID_REQUEST.

Version notes: v3 the producer's present id and epoch (KIP-360).

Not done: transactions. A transactional id is answered with UNSUPPORTED_VERSION, which no client retries; clients see that code
already at FindCoordinator, with a message that this response has no field for.

Source: KafkaApis.handleInitProducerIdRequest, TransactionCoordinator.handleInitProducerId.
"""

from __future__ import annotations

from collections.abc import Awaitable

from broker.handlers.services import Handler, Services
from broker.network.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


def build(services: Services) -> Handler:
    producer_ids = services.controller.producer_ids

    async def wait() -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)

    def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
        if not _is_well_formed(request):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Transactions are not supported.")
        producer_id = producer_ids.find_next()
        if producer_id is None:
            return wait()
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    return handle


def error_response(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    # If the controller is not reachable, the client tries again, as in Kafka.
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error.code in _RETRIABLE else error.code
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


_RETRIABLE = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR)


def _is_well_formed(request: InitProducerIdRequest) -> bool:
    if request.transactional_id == "":
        return False
    return (request.producer_id == NO_PRODUCER_ID) == (request.producer_epoch == NO_PRODUCER_EPOCH)
