"""BrokerHeartbeat (key 63) on controller listeners. Serves v0–v2.

Behaviour: a broker lives: it is unfenced once it has caught up, and may go when others lead what it led. NOT_CONTROLLER where this node
does not lead the metadata quorum; the answer comes once the records are committed.

Source: ControllerApis.handleBrokerHeartBeatRequest.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import ControllerServices, Handler
from broker.network.context import RequestContext
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: BrokerHeartbeatRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.broker_heartbeat(request, context)

    return handle
