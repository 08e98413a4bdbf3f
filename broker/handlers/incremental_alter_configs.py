"""IncrementalAlterConfigs (key 44). Serves v0–v1.

Behaviour:
- Each resource is altered whole or refused; the answer comes when the changes are durable and in effect.
- Topics: every config of Kafka's. Brokers (this one, or "" for all): those that are defaults of topic configs, and the replication
  throttles; others that Kafka lets change while it runs are refused with INVALID_REQUEST, not stored and ignored.
- SET, DELETE, and for lists APPEND and SUBTRACT (KIP-339).
- A resource, or a key of one, that comes twice is refused with INVALID_REQUEST.

Not done: BROKER_LOGGER, CLIENT_METRICS and GROUP resources (INVALID_REQUEST); alter.config.policy.class.name.

Source: ConfigAdminManager.preprocess, ConfigurationControlManager.incrementalAlterConfigs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any

from broker.context import RequestContext
from broker.pieces import at_once_or_in_turns, make_in_pieces
from broker.services import Handler, Services
from protocol.errors import KafkaError
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def build(services: Services) -> Handler:
    controller = services.controller

    def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> Awaitable[IncrementalAlterConfigsResponse]:
        return controller.incremental_alter_configs(request, context)

    return handle


def error_response(request: IncrementalAlterConfigsRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_failed(request, error))


def _failed(request: IncrementalAlterConfigsRequest, error: KafkaError) -> Generator[None, None, IncrementalAlterConfigsResponse]:
    def failed(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
        return AlterConfigsResourceResponse(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    return IncrementalAlterConfigsResponse(responses=(yield from make_in_pieces(failed, request.resources)))
