"""AllocateProducerIds (key 67) on controller listeners. Serves v0.

Behaviour: a broker gets a block of producer ids. NOT_CONTROLLER where this node does not lead the metadata quorum; the answer comes once
the records are committed.

Source: ControllerApis.handleAllocateProducerIdsRequest.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import ControllerServices, Handler
from broker.network.context import RequestContext
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: AllocateProducerIdsRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.allocate_producer_ids(request)

    return handle
