"""UnregisterBroker (key 64) on controller listeners. Serves v0.

Behaviour: as on listeners for clients. NOT_CONTROLLER where this node does not lead the metadata quorum; the answer comes once the
records are committed.

Source: ControllerApis.handleUnregisterBroker.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.cluster.unregister_broker import error_response
from broker.handlers.services import ControllerServices, Handler
from broker.network.context import RequestContext
from protocol.messages.unregister_broker import UnregisterBrokerRequest

__all__ = ["build", "error_response"]


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: UnregisterBrokerRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.unregister_broker(request, context)

    return handle
