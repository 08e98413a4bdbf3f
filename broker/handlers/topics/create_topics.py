"""CreateTopics (key 19). Serves v2–v7.

Behaviour:
- Each topic is created or refused separately. The answer is sent when the created ones are durable and this broker leads their partitions,
after 20 s at the latest.
- -1 partitions or replicas mean the broker's defaults; with a manual assignment both must be -1.
- A duplicate name is refused with INVALID_REQUEST. More than 10,000 metadata records at once: POLICY_VIOLATION for all.
- validate_only checks everything and creates nothing.

Version notes: v4 defaults. v5 partitions, replicas and configs in the response. v6 THROTTLING_QUOTA_EXCEEDED for topics over the client's
quota of mutations; in earlier versions they are created, and the client is throttled (KIP-599). v7 topic ids.

Not done: the request's timeout, unless it is over at once (REQUEST_TIMED_OUT for every topic), since the embedded controller answers in
milliseconds or not at all; create.topic.policy.class.name.

Source: ControllerApis.createTopics, ReplicationControlManager.createTopics (KIP-464, KIP-525).
"""

from __future__ import annotations

from typing import Any

from broker.handlers.services import Handler, Services
from broker.handlers.topics.new_partition_wait import wait_until_made
from broker.loop.turns import Work, in_turns_if_many
from broker.network.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse

ANSWERED_AT_ONCE = 1_000
"""Topics and configs in an answer that is encoded at once, 0.5 µs each. Each topic has about 30 configs."""


def build(services: Services) -> Handler:
    controller = services.controller

    async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse | Work:
        if request.timeout_ms <= 0 and request.topics:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        response = await controller.create_topics(request, context)
        await wait_until_made(services, response.topics)
        return answer(response)

    return handle


def answer(response: CreateTopicsResponse) -> CreateTopicsResponse | Work:
    """The response, which is encoded in turns if it is large."""
    return in_turns_if_many(response, (result.configs or () for result in response.topics), ANSWERED_AT_ONCE)


def error_response(request: CreateTopicsRequest, error: KafkaError) -> Any:
    code, message = error.code, error.message
    results = [CreatableTopicResult(name=topic.name, error_code=code, error_message=message) for topic in request.topics]
    return in_turns_if_many(CreateTopicsResponse(topics=results), [results])
