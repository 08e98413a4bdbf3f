"""The changes of this process's loggers by IncrementalAlterConfigs; they are not in the metadata. Used by both of its handlers.

Source: ConfigAdminManager.preprocess, ControllerApis.handleIncrementalAlterConfigs, RuntimeLoggerManager (KIP-412).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from broker.metadata.cluster_state import RESOURCE_BROKER_LOGGER
from broker.observability.logger_levels import check_level, check_removal, remove_level, set_level
from broker.security.authorizer.access import AUTHORIZATION_MESSAGES, Access
from broker.security.authorizer.acl_codes import AclOperation
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)

CHANGES_MAX = 1_000
"""There are fewer than a hundred loggers: more changes are refused before they are looked at."""

SET, DELETE = 0, 1
_OTHER_OPERATIONS = {2: "APPEND", 3: "SUBTRACT"}


def changed_loggers(
    request: IncrementalAlterConfigsRequest, node_id: int, access: Access, operation: AclOperation, *, checks_form: bool = True
) -> list[AlterConfigsResourceResponse]:
    """Change the loggers that the request names, each resource completely or not at all. Returns the answers in the order of these
    resources. `operation` is what the client needs on the cluster.

    On a controller listener the form is not checked: a duplicate change is made twice."""
    resources = [resource for resource in request.resources if resource.resource_type == RESOURCE_BROKER_LOGGER]
    counts = Counter(resource.resource_name for resource in resources)
    answers = []
    for resource in resources:
        answer = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        answers.append(answer)
        try:
            if checks_form:
                if counts[resource.resource_name] > 1:
                    raise _invalid("Each resource must appear at most once.")
                _check_form(resource.configs)
            if not access.allows_on_cluster(operation):
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                raise KafkaError(code, None if checks_form else AUTHORIZATION_MESSAGES[code])
            _change(resource, node_id, validate_only=request.validate_only)
        except KafkaError as error:
            answer.error_code, answer.error_message = error.code, error.message
    return answers


def without_loggers(request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsRequest:
    others = [resource for resource in request.resources if resource.resource_type != RESOURCE_BROKER_LOGGER]
    return IncrementalAlterConfigsRequest(resources=others, validate_only=request.validate_only)


def _check_form(configs: Sequence[AlterableConfig]) -> None:
    if len(configs) > CHANGES_MAX:
        return  # and refused below
    if len({config.name for config in configs}) < len(configs):
        raise _invalid("Error due to duplicate config keys")
    nulls = [config.name for config in configs if config.value is None and config.config_operation != DELETE]
    if nulls:
        raise _invalid(f"Null value not supported for : {','.join(nulls)}")


def _change(resource: AlterConfigsResource, node_id: int, *, validate_only: bool) -> None:
    configs = resource.configs
    if len(configs) > CHANGES_MAX:
        raise _invalid(f"{len(configs)} changes of loggers are too many.")
    name = resource.resource_name
    if not name.removeprefix("-").isdecimal() or not name.isascii():
        raise _invalid(f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise _invalid(f"Unexpected node id. Expected {node_id}, but received {name}")
    for config in configs:
        _check(config)
    if validate_only:
        return
    for config in configs:
        if config.config_operation == SET:
            set_level(config.name, config.value or "")
        else:
            remove_level(config.name)


def _check(config: AlterableConfig) -> None:
    if config.config_operation == SET:
        check_level(config.name, config.value or "")
    elif config.config_operation == DELETE:
        check_removal(config.name)
    elif config.config_operation in _OTHER_OPERATIONS:
        raise _invalid(f"{_OTHER_OPERATIONS[config.config_operation]} operation is not allowed for the BROKER_LOGGER resource")
    else:
        raise _invalid(f"Unknown operation {config.config_operation} for config {config.name}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
