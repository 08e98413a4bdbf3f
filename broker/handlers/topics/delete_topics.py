"""DeleteTopics (key 20). Serves v1–v6.

Behaviour:
- Each topic is deleted or refused separately. The answer is sent when the deletions are durable and this broker has applied them: the
directories are renamed, so that a new topic of the same name gets its partitions at once.
- Every name and id is answered: librdkafka takes an empty result for a bug.
- With delete.topic.enable=false: TOPIC_DELETION_DISABLED, before v3 INVALID_REQUEST.

Version notes: v5 error messages, and THROTTLING_QUOTA_EXCEEDED as v6 of CreateTopics. v6 topics by name or by id; a topic named in both
ways is refused.

Not done: the request's timeout, unless it is over at once (REQUEST_TIMED_OUT for every topic).

Source: ControllerApis.deleteTopics (KIP-516).
"""

from __future__ import annotations

import asyncio
from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import in_turns_if_many
from broker.network.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.uuids import ZERO_UUID


def build(services: Services) -> Handler:
    controller, replica_manager = services.controller, services.replica_manager
    is_enabled = services.config.delete_topic_enable

    async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        if request.timeout_ms <= 0 and is_enabled and (request.topics or request.topic_names):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        response = await controller.delete_topics(request, context.api_version, context)
        removed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        replica_manager.when_removed(lambda: None if removed.done() else removed.set_result(None))
        await removed
        return response

    return handle


def error_response(request: DeleteTopicsRequest, error: KafkaError) -> Any:
    code, message = error.code, error.message
    asked = [(name, ZERO_UUID) for name in request.topic_names] + [(topic.name, topic.topic_id) for topic in request.topics]
    results = [DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message) for name, topic_id in asked]
    return in_turns_if_many(DeleteTopicsResponse(responses=results), [results])
