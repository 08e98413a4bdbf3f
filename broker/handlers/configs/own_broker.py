"""What a broker checks of its own configs before the controller alters them: it alone knows which log directories it has, and which keys
and certificates the files have that its listeners are told to use.

Source: kafka.server.ConfigAdminManager.preprocess, KafkaConfig.validateCordonedLogDirs (KIP-1066), DynamicBrokerConfig.validate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from broker.handlers.services import Services
from broker.metadata.cluster_state import RESOURCE_BROKER
from broker.network.context import RequestContext
from config.cordoned import CORDONED_LOG_DIRS, find_fault
from config.listener_properties import PREFIX
from config.properties import ConfigError
from config.server import SERVER_PROPERTIES
from protocol.errors import ErrorCode

Alter = Callable[[Any, RequestContext], Awaitable[Any]]
"""Of the controller: IncrementalAlterConfigs, or AlterConfigs."""

SET, DELETE, APPEND = 0, 1, 2
"""Operations of IncrementalAlterConfigs; AlterConfigs can only set, and deletes what it does not name."""


def with_own_checked(services: Services, alter: Alter, refusal_class: Callable[..., Any]) -> Alter:
    """Wraps `alter`: changes that cordon unknown log directories of this broker, or that its listeners cannot take up, are answered with an
    error, which is an instance of `refusal_class`; the others are forwarded."""
    own_name = str(services.node_id)

    async def checked(request: Any, context: RequestContext) -> Any:
        own = [(place, resource) for place, resource in enumerate(request.resources) if is_own(resource)]
        fault = None  # the controller refuses a resource that comes twice
        if len(own) == 1:
            fault = find_cordon_fault(own[0][1]) or find_listener_fault(own[0][1])
        if fault is None:
            return await alter(request, context)
        place, resource = own[0]
        kept = [*request.resources[:place], *request.resources[place + 1 :]]
        response = await alter(type(request)(resources=kept, validate_only=request.validate_only), context)
        refusal = refusal_class(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=fault,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        response.responses.insert(place, refusal)
        return response

    def is_own(resource: Any) -> bool:
        return bool(resource.resource_type == RESOURCE_BROKER and resource.resource_name == own_name)

    def find_listener_fault(resource: Any) -> str | None:
        if not any(config.name.startswith(PREFIX) for config in resource.configs):
            return None
        is_incremental = bool(resource.configs) and hasattr(resource.configs[0], "config_operation")
        overrides = dict(services.metadata.state.broker_overrides(own_name)) if is_incremental else {}
        for config in resource.configs:
            if config.value is None or getattr(config, "config_operation", SET) == DELETE:
                overrides.pop(config.name, None)
            else:
                overrides[config.name] = config.value
        return services.find_listener_fault(overrides)

    def find_cordon_fault(resource: Any) -> str | None:
        config = next((each for each in resource.configs if each.name == CORDONED_LOG_DIRS), None)
        operation = getattr(config, "config_operation", SET)  # AlterConfigs can only set
        if config is None or config.value is None or operation not in (SET, APPEND):
            return None
        known = SERVER_PROPERTIES[CORDONED_LOG_DIRS]
        present = services.metadata.state.broker_overrides(own_name).get(CORDONED_LOG_DIRS, "") if operation == APPEND else ""
        try:
            names = known.parse(",".join(filter(None, (present, config.value))))
        except ConfigError:
            return None  # the controller tells it
        assert isinstance(names, tuple), "it is a list"
        fault = find_fault(names, services.config.log_dirs)
        return fault and f"requirement failed: {fault}"

    return checked
