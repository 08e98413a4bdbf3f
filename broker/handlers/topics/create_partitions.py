"""CreatePartitions (key 37). Serves v0–v3.

Behaviour:
- Each topic gets its new number of partitions or is refused separately. The answer is sent when the new partitions are durable and have
leaders, after 20 s at the latest.
- A number that is not an increase: INVALID_PARTITIONS. A manual assignment has one list of replicas for each new partition.
- A duplicate topic is refused with INVALID_REQUEST. More than 10,000 at once: POLICY_VIOLATION for all (Kafka 4.3 answers
UNKNOWN_SERVER_ERROR here, and creates 10,000).

Not done: the request's timeout, unless it is over at once (REQUEST_TIMED_OUT for every topic).

Source: ControllerApis.createPartitions, ReplicationControlManager.createPartitions.
"""

from __future__ import annotations

from typing import Any

from broker.handlers.services import Handler, Services
from broker.handlers.topics.new_partition_wait import wait_until_made
from broker.loop.turns import in_turns_if_many
from broker.network.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


def build(services: Services) -> Handler:
    controller = services.controller

    async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
        if request.timeout_ms <= 0 and request.topics:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        response = await controller.create_partitions(request, context)
        await wait_until_made(services, response.results)
        return response

    return handle


def error_response(request: CreatePartitionsRequest, error: KafkaError) -> Any:
    code, message = error.code, error.message
    results = [CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message) for topic in request.topics]
    return in_turns_if_many(CreatePartitionsResponse(results=results), [results])
