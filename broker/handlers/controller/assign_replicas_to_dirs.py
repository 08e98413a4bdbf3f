"""AssignReplicasToDirs (key 73) on controller listeners. Serves v0.

Behaviour: a broker tells in which log directories its replicas are (KIP-858). NOT_CONTROLLER where this node does not lead the metadata
quorum; the answer comes once the records are committed.

Source: ControllerApis.handleAssignReplicasToDirs.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import ControllerServices, Handler
from broker.network.context import RequestContext
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: AssignReplicasToDirsRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.assign_replicas_to_dirs(request)

    return handle
