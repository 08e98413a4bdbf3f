"""IncrementalAlterConfigs (key 44). Serves v0–v1.

Behaviour:
- Each resource is altered completely or refused. The answer is sent when the changes are durable and in effect.
- Topics, groups, client metrics subscriptions: every config of Kafka's. Brokers (this one, or "" for all): as
broker/controller/broker_config_rules.py says; cordoned_log_dirs.py looks at cordoned.log.dirs of this one. Broker loggers (this one's) are
changed here and forgotten when the process ends.
- TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED for a resource without ALTER_CONFIGS on it, or for brokers, their loggers and client
metrics, on the cluster.
- SET, DELETE, and for lists APPEND and SUBTRACT (KIP-339).
- A duplicate resource, or a duplicate key of one, is refused with INVALID_REQUEST.

Not done: alter.config.policy.class.name.

Source: ConfigAdminManager.preprocess, ConfigurationControlManager.incrementalAlterConfigs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from broker.handlers.configs.alter_configs import answer_each
from broker.handlers.configs.own_broker import with_own_checked
from broker.handlers.services import Handler, Services
from broker.metadata.cluster_state import RESOURCE_BROKER_LOGGER
from broker.network.context import RequestContext
from broker.security.authorizer.acl_codes import AclOperation
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Alter = Callable[[IncrementalAlterConfigsRequest, RequestContext], Awaitable[IncrementalAlterConfigsResponse]]
AlterWithLoggers = Callable[[RequestContext, IncrementalAlterConfigsRequest], Awaitable[IncrementalAlterConfigsResponse]]

RESOURCES_WITH_LOGGERS_MAX = 1_000
"""A node has one set of loggers: more resources beside it are refused rather than looked at one by one."""


def build(services: Services) -> Handler:
    alter = with_own_checked(services, services.controller.incremental_alter_configs, AlterConfigsResourceResponse)

    async def with_loggers(context: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        """Change the loggers of this broker, and let the controller change the rest."""
        from broker.handlers.configs.logger_changes import changed_loggers, without_loggers

        own = iter(changed_loggers(request, services.node_id, context.access, AclOperation.ALTER_CONFIGS))
        rest = without_loggers(request)
        answered = await alter(rest, context) if rest.resources else IncrementalAlterConfigsResponse()
        changed = iter(answered.responses)
        answers = [next(own if resource.resource_type == RESOURCE_BROKER_LOGGER else changed) for resource in request.resources]
        return IncrementalAlterConfigsResponse(responses=answers)

    return handler(alter, with_loggers)


def handler(alter: Alter, with_loggers: AlterWithLoggers) -> Handler:
    """Returns a handler that passes requests to the controller by `alter`, and those with loggers to `with_loggers`."""

    def handle(context: RequestContext, request: IncrementalAlterConfigsRequest) -> Awaitable[IncrementalAlterConfigsResponse]:
        if not any(resource.resource_type == RESOURCE_BROKER_LOGGER for resource in request.resources):
            return alter(request, context)
        if len(request.resources) > RESOURCES_WITH_LOGGERS_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{len(request.resources)} resources, loggers among them, are too many.")
        return with_loggers(context, request)

    return handle


def error_response(request: IncrementalAlterConfigsRequest, error: KafkaError) -> Any:
    return answer_each(request, error, AlterConfigsResourceResponse, IncrementalAlterConfigsResponse)
