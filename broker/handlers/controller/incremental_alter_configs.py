"""IncrementalAlterConfigs (key 44) on controller listeners. Serves v0–v1.

Behaviour:
- Configs of topics and brokers are changed. The broker that forwards it is answered as its client would be. NOT_CONTROLLER where this
  node does not lead the metadata quorum; the answer comes once the records are committed.
- Broker loggers, by this node's id: changed here, also where this node does not lead, and forgotten when the process ends. Their answers
  come after the others.

Source: ControllerApis.handleIncrementalAlterConfigs.
"""

from __future__ import annotations

from broker.handlers.configs.incremental_alter_configs import error_response, handler
from broker.handlers.services import ControllerServices, Handler
from broker.network.context import RequestContext
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

__all__ = ["build", "error_response"]


def build(services: ControllerServices) -> Handler:
    controller = services.controller

    async def with_loggers(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        from broker.handlers.configs.logger_changes import changed_loggers_of_controller, without_loggers

        changed = changed_loggers_of_controller(request, services.metadata.node_id)
        rest = without_loggers(request)
        response = await controller.incremental_alter_configs(rest, context) if rest.resources else IncrementalAlterConfigsResponse()
        return IncrementalAlterConfigsResponse(responses=[*response.responses, *changed])

    return handler(controller.incremental_alter_configs, with_loggers)
