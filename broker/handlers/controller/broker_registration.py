"""BrokerRegistration (key 62) on controller listeners. Serves v0–v4.

Behaviour: a broker registers, fenced, and gets its epoch. NOT_CONTROLLER where this node does not lead the metadata quorum; the answer
comes once the records are committed.

Source: ControllerApis.handleBrokerRegistration.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import ControllerServices, Handler
from broker.network.context import RequestContext
from protocol.messages.broker_registration import BrokerRegistrationRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: BrokerRegistrationRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.register_broker(request, context)

    return handle
