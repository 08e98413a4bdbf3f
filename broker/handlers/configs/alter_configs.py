"""AlterConfigs (key 33): give resources these configs and no others. Serves v0–v2.

Behaviour: as IncrementalAlterConfigs with SET for what is named and DELETE for what else is set; broker loggers are INVALID_REQUEST, for
this API is older than they.

Version notes: v2 flexible.

Not done: alter.config.policy.class.name.

Source: ConfigAdminManager.preprocess, ConfigurationControlManager.legacyAlterConfigs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any

from broker.handlers.configs.own_cordons import Alter, with_cordons_checked
from broker.handlers.services import ControllerServices, Handler, Services
from broker.loop.turns import at_once_or_in_turns, make_in_turns
from broker.network.context import RequestContext
from protocol.errors import KafkaError
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse


def build(services: Services | ControllerServices) -> Handler:
    alter: Alter = services.controller.alter_configs
    if isinstance(services, Services):
        alter = with_cordons_checked(services, alter, AlterConfigsResourceResponse)

    def handle(context: RequestContext, request: AlterConfigsRequest) -> Awaitable[AlterConfigsResponse]:
        return alter(request, context)

    return handle


def error_response(request: AlterConfigsRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: AlterConfigsRequest, error: KafkaError) -> Generator[None, None, AlterConfigsResponse]:
    def failed(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
        return AlterConfigsResourceResponse(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    return AlterConfigsResponse(responses=(yield from make_in_turns(failed, request.resources)))
