"""UnregisterBroker (key 64). Serves v0.

Behaviour: removes a broker's registration. The broker loses its leaderships and leaves the ISRs, but stays in the assignments of its
partitions. BROKER_ID_NOT_REGISTERED if it is unknown.

Source: ControllerApis.handleUnregisterBroker, ReplicationControlManager.unregisterBroker (KIP-631).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import Handler, Services
from broker.network.context import RequestContext
from protocol.errors import KafkaError
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def build(services: Services) -> Handler:
    controller = services.controller

    def handle(context: RequestContext, request: UnregisterBrokerRequest) -> Coroutine[Any, Any, Any]:
        return controller.unregister_broker(request, context)

    return handle


def error_response(request: UnregisterBrokerRequest, error: KafkaError) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
