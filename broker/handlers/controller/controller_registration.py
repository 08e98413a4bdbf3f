"""ControllerRegistration (key 70) on controller listeners. Serves v0.

Behaviour: a controller tells where it is reached and which features it supports, so that clients find it and UpdateFeatures asks it.
NOT_CONTROLLER where this node does not lead the metadata quorum; the answer comes once the records are committed.

Source: ControllerApis.handleControllerRegistration, ClusterControlManager.registerController (KIP-919).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.services import ControllerServices, Handler
from broker.network.context import RequestContext
from protocol.messages.controller_registration import ControllerRegistrationRequest


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: ControllerRegistrationRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.register_controller(request)

    return handle
