"""ListPartitionReassignments (key 46). Serves v0.

Behaviour: the ongoing reassignments of the requested partitions or, with null, of all: each partition's replicas, those being added and
those to be removed. Partitions without a reassignment, and unknown ones, are left out.

Not done: the request's timeout.

Source: ControllerApis.handleListPartitionReassignments, ReplicationControlManager.listPartitionReassignments (KIP-455).
"""

from __future__ import annotations

from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, in_turns_if_many
from broker.network.context import RequestContext
from protocol.errors import KafkaError
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

ANSWERED_AT_ONCE = 300
"""Partitions in an answer that is encoded at once, 2 µs each."""


def build(services: Services) -> Handler:
    controller = services.controller

    async def handle(context: RequestContext, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse | Work:
        return answer(await controller.list_partition_reassignments(request, context))

    return handle


def answer(response: ListPartitionReassignmentsResponse) -> ListPartitionReassignmentsResponse | Work:
    """The response, which is encoded in turns if it is large."""
    return in_turns_if_many(response, (topic.partitions for topic in response.topics), ANSWERED_AT_ONCE)


def error_response(request: ListPartitionReassignmentsRequest, error: KafkaError) -> Any:
    topics = [
        OngoingTopicReassignment(
            name=topic.name, partitions=[OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes]
        )
        for topic in request.topics or ()
    ]
    return answer(ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message, topics=topics))
