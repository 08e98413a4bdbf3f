"""APIs of controller listeners whose large answers are encoded in turns, like those of client listeners.

Source: ControllerApis.
"""

from __future__ import annotations

from typing import Any

from broker.handlers.services import ControllerServices, Handler
from broker.loop.turns import Work
from broker.network.context import RequestContext
from protocol.apis import ListenerKind
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.describe_quorum import DescribeQuorumRequest
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse


def build_api_versions(services: ControllerServices) -> Handler:
    """The controller's APIs. A leader asks a newcomer for its range of kraft.version before it becomes a voter (KIP-853)."""
    from broker.handlers.cluster.api_versions import build_for

    return build_for(ListenerKind.CONTROLLER, services.metadata, lambda: services.quorum.kraft_version)


def build_create_topics(services: ControllerServices) -> Handler:
    from broker.handlers.topics.create_topics import answer

    async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse | Work:
        return answer(await services.controller.create_topics(request, context))

    return handle


def build_elect_leaders(services: ControllerServices) -> Handler:
    from broker.handlers.cluster.elect_leaders import answered

    async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse | Work:
        return await answered(services.controller.elect_leaders(request, context), context, request)

    return handle


def build_list_partition_reassignments(services: ControllerServices) -> Handler:
    from broker.handlers.cluster.list_partition_reassignments import answer

    async def handle(context: RequestContext, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse | Work:
        return answer(await services.controller.list_partition_reassignments(request, context))

    return handle


def build_describe_quorum(services: ControllerServices) -> Handler:
    """The leader answers with the voters and observers and the progress of each. The quorum's replica in this node answers
    (broker/quorum/)."""
    from broker.handlers.cluster.describe_quorum import asks_for_the_metadata_log, refused

    def handle(context: RequestContext, request: DescribeQuorumRequest) -> Any:
        if not asks_for_the_metadata_log(request):
            return refused(request)
        return services.ask_quorum(request, context.api_version, context.connection.listener.name)

    return handle
