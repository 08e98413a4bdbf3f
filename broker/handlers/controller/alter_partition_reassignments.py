"""AlterPartitionReassignments (key 45) on controller listeners. Serves v0–v1.

Behaviour: as on listeners for clients. NOT_CONTROLLER where this node does not lead the metadata quorum; the answer comes once the
records are committed.

Source: ControllerApis.handleAlterPartitionReassignments.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.cluster.alter_partition_reassignments import error_response
from broker.handlers.services import ControllerServices, Handler
from broker.network.context import RequestContext
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest

__all__ = ["build", "error_response"]


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: AlterPartitionReassignmentsRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.alter_partition_reassignments(request, context)

    return handle
