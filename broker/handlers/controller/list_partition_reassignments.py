"""ListPartitionReassignments (key 46) on controller listeners. Serves v0.

Behaviour: as on listeners for clients. NOT_CONTROLLER where this node does not lead the metadata quorum; the answer comes once the
records are committed.

Source: ControllerApis.handleListPartitionReassignments.
"""

from __future__ import annotations

from broker.handlers.cluster.list_partition_reassignments import answer, error_response
from broker.handlers.services import ControllerServices, Handler
from broker.loop.turns import Work
from broker.network.context import RequestContext
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse

__all__ = ["build", "error_response"]


def build(services: ControllerServices) -> Handler:
    async def handle(context: RequestContext, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse | Work:
        return answer(await services.controller.list_partition_reassignments(request, context))

    return handle
