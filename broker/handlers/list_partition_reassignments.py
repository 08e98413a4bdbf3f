"""ListPartitionReassignments (key 46). Serves v0.

Behaviour: the moves of replicas that go on, of the partitions that are asked for or, with null, of all: each partition's replicas, and
which of them are being added and are to be removed. Others, and what does not exist, are left out.

Not done: the request's timeout.

Source: ControllerApis.handleListPartitionReassignments, ReplicationControlManager.listPartitionReassignments (KIP-455).
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any

from broker.context import RequestContext
from broker.pieces import at_once_or_in_turns, make_in_pieces
from broker.services import Handler, Services
from protocol.errors import KafkaError
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def build(services: Services) -> Handler:
    controller = services.controller

    def handle(context: RequestContext, request: ListPartitionReassignmentsRequest) -> Coroutine[Any, Any, Any]:
        return controller.list_partition_reassignments(request, context)

    return handle


def error_response(request: ListPartitionReassignmentsRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: ListPartitionReassignmentsRequest, error: KafkaError) -> Generator[None, None, ListPartitionReassignmentsResponse]:
    def named(index: int) -> OngoingPartitionReassignment:
        return OngoingPartitionReassignment(partition_index=index)

    topics = []
    for topic in request.topics or ():
        topics.append(OngoingTopicReassignment(name=topic.name, partitions=(yield from make_in_pieces(named, topic.partition_indexes))))
        yield
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message, topics=topics)
