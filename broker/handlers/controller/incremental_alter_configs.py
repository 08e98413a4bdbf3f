"""IncrementalAlterConfigs (key 44) on controller listeners. Serves v0–v1.

Behaviour: configs of topics and brokers are changed. The broker that forwards it is answered as its client would be. NOT_CONTROLLER where
this node does not lead the metadata quorum; the answer comes once the records are committed.

Source: ControllerApis.handleIncrementalAlterConfigs.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.context import RequestContext
from broker.handlers.incremental_alter_configs import error_response
from broker.services import ControllerServices, Handler
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

__all__ = ["build", "error_response"]


def build(services: ControllerServices) -> Handler:
    def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> Coroutine[Any, Any, Any]:
        return services.controller.incremental_alter_configs(request, context)

    return handle
