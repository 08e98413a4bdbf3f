"""ElectLeaders (key 43). Serves v0–v2.

Behaviour:
- Elects each partition's preferred replica, or, with election type 1, a leader for a partition without one, if necessary a replica that is
not in sync.
- Null topic_partitions means all partitions; those that need no election are then left out of the answer.
- ELECTION_NOT_NEEDED: the preferred replica leads, or, for an unclean election, any replica does. PREFERRED_LEADER_NOT_AVAILABLE: it is not
alive, or not in sync. ELIGIBLE_LEADERS_NOT_AVAILABLE: no replica is alive. UNKNOWN_TOPIC_OR_PARTITION.
- An unknown election type: INVALID_REQUEST. More than 10,000 partitions by name: POLICY_VIOLATION.

Version notes: v1 election type (v0 elects preferred replicas), and an error for the whole request besides that of each partition.

Not done: the request's timeout.

Source: ControllerApis.handleElectLeaders, ReplicationControlManager.electLeaders (KIP-183, KIP-460).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns, in_turns_if_many, make_in_turns
from broker.network.context import RequestContext
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult

ANSWERED_AT_ONCE = 1_000
"""Partitions in an answer that is encoded at once, 0.5 µs each."""


def build(services: Services) -> Handler:
    controller = services.controller

    async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse | Work:
        return await answered(controller.elect_leaders(request, context), context, request)

    return handle


async def answered(
    outcome: Awaitable[ElectLeadersResponse], context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse | Work:
    """Returns the answer, in turns if it is large. In v0, which has no field for it, an error of the whole request is set for each
    partition."""
    try:
        response = await outcome
    except KafkaError as error:
        is_told_otherwise = error.code is ErrorCode.NOT_CONTROLLER and context.connection.is_forwarded
        if context.api_version > 0 or is_told_otherwise:
            raise
        return _failed(request, error, ErrorCode.NONE)
    return _answer(response)


def error_response(request: ElectLeadersRequest, error: KafkaError) -> Any:
    return _failed(request, error, error.code)


def _failed(request: ElectLeadersRequest, error: KafkaError, code: ErrorCode) -> ElectLeadersResponse | Work:
    response: ElectLeadersResponse | Work = at_once_or_in_turns(_all_failed(request, error, code), ANSWERED_AT_ONCE)
    return response


def _all_failed(request: ElectLeadersRequest, error: KafkaError, code: ErrorCode) -> Work:
    def failed(index: int) -> PartitionResult:
        return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)

    results: list[ReplicaElectionResult] = []
    for topic in request.topic_partitions or ():
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=(yield from make_in_turns(failed, topic.partitions))))
        yield
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _answer(response: ElectLeadersResponse) -> ElectLeadersResponse | Work:
    return in_turns_if_many(response, (result.partition_result for result in response.replica_election_results), ANSWERED_AT_ONCE)
