"""AlterPartitionReassignments (key 45). Serves v0–v1.

Behaviour:
- The replicas of each partition move to the given brokers; null cancels an ongoing move. Each partition is answered separately, when its
move has begun; ListPartitionReassignments shows when it has ended.
- UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT (no broker, one twice or one that is not registered; or a cancellation would need
an unclean election), NO_REASSIGNMENT_IN_PROGRESS.
- v1: a move that changes the number of replicas is refused with INVALID_REPLICATION_FACTOR unless allow_replication_factor_change, which v0
takes for granted (KIP-860). Kafka serves v1 since 4.1.
- More than 10,000 partitions: POLICY_VIOLATION.

Not done: the request's timeout. Kafka appends the records of all partitions together, this in steps.

Source: ControllerApis.handleAlterPartitionReassignments, ReplicationControlManager.alterPartitionReassignments (KIP-455, KIP-860).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import in_turns_if_many
from broker.network.context import RequestContext
from protocol.errors import KafkaError
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def build(services: Services) -> Handler:
    controller = services.controller

    def handle(context: RequestContext, request: AlterPartitionReassignmentsRequest) -> Coroutine[Any, Any, Any]:
        return controller.alter_partition_reassignments(request, context)

    return handle


def error_response(request: AlterPartitionReassignmentsRequest, error: KafkaError) -> Any:
    code, message = error.code, error.message
    responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(partition_index=partition.partition_index, error_code=code, error_message=message)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    response = AlterPartitionReassignmentsResponse(error_code=code, error_message=message, responses=responses)
    return in_turns_if_many(response, (topic.partitions for topic in responses))
