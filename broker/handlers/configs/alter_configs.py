"""AlterConfigs (key 33): replace all configs of resources. Serves v0–v2.

Behaviour: as IncrementalAlterConfigs with SET for the named configs and DELETE for all others that are set. Broker loggers are
INVALID_REQUEST: this API is older than they are.

Version notes: v2 flexible.

Not done: alter.config.policy.class.name.

Source: ConfigAdminManager.preprocess, ConfigurationControlManager.legacyAlterConfigs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from broker.handlers.configs.own_broker import Alter, with_own_checked
from broker.handlers.services import ControllerServices, Handler, Services
from broker.loop.turns import in_turns_if_many
from broker.network.context import RequestContext
from protocol.errors import KafkaError
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse


def build(services: Services | ControllerServices) -> Handler:
    alter: Alter = services.controller.alter_configs
    if isinstance(services, Services):
        alter = with_own_checked(services, alter, AlterConfigsResourceResponse)

    def handle(context: RequestContext, request: AlterConfigsRequest) -> Awaitable[AlterConfigsResponse]:
        return alter(request, context)

    return handle


def error_response(request: AlterConfigsRequest, error: KafkaError) -> Any:
    return answer_each(request, error, AlterConfigsResourceResponse, AlterConfigsResponse)


def answer_each(request: Any, error: KafkaError, answer_class: Callable[..., Any], response_class: Callable[..., Any]) -> Any:
    """The error for each resource of a request of this API or of IncrementalAlterConfigs."""
    answers = [
        answer_class(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in request.resources
    ]
    return in_turns_if_many(response_class(responses=answers), [answers])
