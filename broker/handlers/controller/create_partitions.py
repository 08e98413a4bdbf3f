"""CreatePartitions (key 37) on controller listeners. Serves v0–v3.

Behaviour: topics get more partitions. The broker that forwards it is answered as its client would be. NOT_CONTROLLER where this node does
not lead the metadata quorum; the answer comes once the records are committed.

Source: ControllerApis.handleCreatePartitions.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import ControllerServices, Handler
from broker.handlers.topics.create_partitions import error_response
from broker.network.context import RequestContext
from protocol.messages.create_partitions import CreatePartitionsRequest

__all__ = ["build", "error_response"]


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: CreatePartitionsRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.create_partitions(request, context)

    return handle
