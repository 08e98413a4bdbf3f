"""AlterPartition (key 56) on controller listeners. Serves v2–v3.

Behaviour: a leader proposes its partitions' ISR. NOT_CONTROLLER where this node does not lead the metadata quorum; the answer comes once
the records are committed.

Source: ControllerApis.handleAlterPartitionRequest.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import ControllerServices, Handler
from broker.network.context import RequestContext
from protocol.messages.alter_partition import AlterPartitionRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: AlterPartitionRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.alter_partition(request)

    return handle
