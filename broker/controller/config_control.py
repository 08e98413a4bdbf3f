"""The controller's decisions about configs: IncrementalAlterConfigs, AlterConfigs, and the config records of new topics. Pure.

Configs take effect when their records are replayed. broker_config_rules.py decides which broker configs may change at run time. Groups and
client metrics subscriptions need not exist: any name can have configs.

Source: ConfigurationControlManager, ControllerConfigurationValidator, ConfigAdminManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import Any

from broker.controller.broker_config_rules import THREAD_COUNTS, check_alterable, check_thread_count, check_value, is_stored
from broker.controller.controller_result import RECORDS_PER_OPERATION_MAX, STEP_ELEMENTS, Pace, Steps, check_records_count
from broker.controller.elections import MIN_IN_SYNC_REPLICAS, UNCLEAN_ELECTION
from broker.controller.topic_selection import find_duplicates
from broker.metadata.cluster_state import RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP, RESOURCE_TOPIC, ClusterState
from broker.metadata.dynamic_configs import find_stored_value
from broker.metadata.features import ELR_FEATURE, knows_cordoned_directories
from broker.metadata.topic_names import validate_name
from config.cordoned import CORDONED_LOG_DIRS
from config.properties import ConfigError, Property, PropertyType
from config.server import SERVER_PROPERTIES, ServerConfig
from config.topic import TOPIC_PROPERTIES, validate_topic_configs
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_configs import AlterableConfig as ReplacedConfig
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from protocol.messages.alter_configs import AlterConfigsResourceResponse as ReplacedResourceResponse
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.stored.metadata_records import ClearElrRecord, ConfigRecord

KNOWN_CONFIGS_MAX = len(SERVER_PROPERTIES) + len(TOPIC_PROPERTIES)

VALUE_BYTES_MAX = 2**15 - 1

RESOURCE_ELEMENTS = 5
"""What a resource with few configs counts for in a step: checking a topic's takes 20 µs."""


class AlterOperation(IntEnum):
    """The operation on a config's value (KIP-339); the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigControl:
    """Computes the records of config changes. Reads `state`, never changes it."""

    def __init__(self, state: ClusterState, config: ServerConfig, node_id: int) -> None:
        self._state = state
        self._config = config
        self._node_id = node_id
        self.unclean_elections_altered = 0
        """How often unclean.leader.election.enable was: then partitions without a leader are looked at."""

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, is_direct: bool = False
    ) -> Steps[IncrementalAlterConfigsResponse]:
        """Each resource is altered completely or not at all. `is_direct` means that the client sent the request to the controller, so no
        broker has checked it. Raises KafkaError POLICY_VIOLATION for too many changes at once."""
        return IncrementalAlterConfigsResponse(responses=(yield from self._alter_all(request, is_direct=is_direct)))

    def alter_configs(self, request: AlterConfigsRequest, *, is_direct: bool = False) -> Steps[AlterConfigsResponse]:
        """As `incremental_alter_configs`, but configs of the resource that are not named are deleted."""
        return AlterConfigsResponse(responses=(yield from self._alter_all(request, is_direct=is_direct)))

    def _alter_all(self, request: IncrementalAlterConfigsRequest | AlterConfigsRequest, *, is_direct: bool) -> Steps[list[Any]]:
        twice = find_duplicates(request.resources, attrgetter("resource_type", "resource_name"))
        if sum(len(resource.configs) for resource in request.resources) > RECORDS_PER_OPERATION_MAX:
            records_count = 0
            for resource in request.resources:
                records, _ = self._altered(resource, twice, is_direct=is_direct)
                records_count += len(records)
                check_records_count(records_count)
                yield []
        responses = []
        step: list[Any] = []
        pace = Pace()
        for resource in request.resources:
            records, response = self._altered(resource, twice, is_direct=is_direct)
            responses.append(response)
            step += [] if request.validate_only else records
            if pace.is_due(min(max(len(resource.configs), RESOURCE_ELEMENTS), STEP_ELEMENTS)):
                yield step
                step = []
        yield step
        return responses

    def _altered(
        self, resource: AlterConfigsResource | ReplacedResource, twice: Container[tuple[int, str]], *, is_direct: bool
    ) -> tuple[list[Any], AlterConfigsResourceResponse | ReplacedResourceResponse]:
        """Returns the records that alter the resource, and its answer."""
        kind, name = resource.resource_type, resource.resource_name
        answer_class = ReplacedResourceResponse if isinstance(resource, ReplacedResource) else AlterConfigsResourceResponse
        response = answer_class(resource_type=kind, resource_name=name, error_message=None)
        try:
            if (kind, name) in twice:
                raise _invalid_request("Each resource must appear at most once.")
            _check_form(resource.configs)
            # The names differ, so among so many there is an unknown one.
            if isinstance(resource, ReplacedResource):
                changes = self._as_changes(resource, resource.configs[: KNOWN_CONFIGS_MAX + 1])
            else:
                changes = AlterConfigsResource(resource_type=kind, resource_name=name, configs=resource.configs[: KNOWN_CONFIGS_MAX + 1])
            records = self._alter(changes)
            if is_direct and kind == RESOURCE_BROKER:
                self._check_cordoned_by_controller(records)
            self.unclean_elections_altered += any(record.name == UNCLEAN_ELECTION for record in records if isinstance(record, ConfigRecord))
            return records, response
        except KafkaError as error:
            response.error_code = error.code
            response.error_message = error.message
            return [], response

    def _as_changes(self, resource: ReplacedResource, configs: Sequence[ReplacedConfig]) -> AlterConfigsResource:
        """Converts AlterConfigs of `configs` to the equal IncrementalAlterConfigs."""
        kind, name = resource.resource_type, resource.resource_name
        changes = [AlterableConfig(name=config.name, value=config.value) for config in configs]
        kept = {change.name for change in changes}
        current = self._state.configs.get((kind, name), {})
        changes += [AlterableConfig(name=name, config_operation=AlterOperation.DELETE, value=None) for name in current if name not in kept]
        return AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)

    def _alter(self, resource: AlterConfigsResource) -> list[Any]:
        records = self._changes_of(resource)
        if self._state.features.get(ELR_FEATURE, 0) == 0:
            return records
        changed = [record for record in records if record.name == MIN_IN_SYNC_REPLICAS]
        # A replica that left an ISR under the old minimum may lack records that are committed under the new one.
        return [*records, *(ClearElrRecord(topic_name=_topic_name(record)) for record in changed)]

    def _changes_of(self, resource: AlterConfigsResource) -> list[ConfigRecord]:
        if resource.resource_type == RESOURCE_TOPIC:
            return self._alter_topic(resource)
        if resource.resource_type == RESOURCE_BROKER:
            return self._alter_broker(resource)
        if resource.resource_type in (RESOURCE_CLIENT_METRICS, RESOURCE_GROUP):
            return self._alter_named(resource)
        raise _invalid_request(f"Unknown resource type {resource.resource_type}")

    def _alter_topic(self, resource: AlterConfigsResource) -> list[ConfigRecord]:
        name = resource.resource_name
        current = self._state.topic_overrides(name)
        changes = {config.name: _new_value(config, current.get(config.name), TOPIC_PROPERTIES) for config in resource.configs}
        if not name:
            raise _invalid_request("Default topic resources are not allowed.")
        validate_name(name)
        merged = {key: value for key, value in (current | changes).items() if value is not None}
        validated_topic_configs(self._config, merged, unchanged=current)
        if name not in self._state.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return changed_configs(RESOURCE_TOPIC, name, {key: value for key, value in changes.items() if value != current.get(key)})

    def _alter_broker(self, resource: AlterConfigsResource) -> list[ConfigRecord]:
        name = resource.resource_name
        if name:
            if not name.removeprefix("-").isdecimal() or not name.isascii():
                raise _invalid_request(f"Node id must be an integer, but it is: {name}")
            if int(name) != self._node_id and int(name) not in self._state.brokers:
                raise _invalid_request(f"Unexpected broker id, expected {self._node_id}, but received {name}")
            # The state and DescribeConfigs use the canonical text of a broker's id.
            name = str(int(name))
        current = self._state.broker_overrides(name)
        changes: dict[str, str | None] = {}
        for config in resource.configs:
            value = _new_value(config, current.get(config.name), SERVER_PROPERTIES)
            # Deleting a config that is not set changes nothing. kafka-reassign-partitions --verify does so with the throttles of each
            # broker.
            if value is not None or is_stored(config.name) or config.name in current:
                changes[config.name] = value
        values = {key: value for key, value in changes.items() if value is not None}
        check_alterable(values, is_default=not name)
        for key, value in values.items():
            check_value(key, value, self._config)
        for thread_count in THREAD_COUNTS:
            if thread_count in changes:
                self._check_thread_count(name, thread_count, changes[thread_count])
        if MIN_IN_SYNC_REPLICAS in changes and self._state.features.get(ELR_FEATURE, 0) > 0:
            _check_min_isr_with_elr(name, changes[MIN_IN_SYNC_REPLICAS])
        if CORDONED_LOG_DIRS in changes and not knows_cordoned_directories(self._state.features):
            why = f"The {CORDONED_LOG_DIRS} configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)
        # Kafka writes a broker's configs even when they are unchanged, so that it reloads them (KAFKA-14136).
        return changed_configs(RESOURCE_BROKER, name, changes)

    def _check_cordoned_by_controller(self, records: Sequence[Any]) -> None:
        """Only the broker knows its log directories, so the controller only accepts a subset of the cordoned ones. Raises KafkaError
        INVALID_CONFIG."""
        known = SERVER_PROPERTIES[CORDONED_LOG_DIRS]
        for record in records:
            if isinstance(record, ConfigRecord) and record.name == CORDONED_LOG_DIRS and record.value is not None:
                present = find_stored_value(self._state, record.resource_name, known) or ()
                wanted = known.parse(record.value)
                assert isinstance(present, tuple) and isinstance(wanted, tuple), "it is a list"
                if not set(wanted) <= set(present):
                    why = f"When updating {CORDONED_LOG_DIRS} via controllers,  the new value must be a subset of "  # Kafka's two spaces
                    raise KafkaError(ErrorCode.INVALID_CONFIG, f"{why}the current configuration value.")

    def _check_thread_count(self, broker: str, name: str, text: str | None) -> None:
        """Check the new number of threads of one broker, or of all. For all, the present number is this node's, as in Kafka, unless this
        node has its own setting. Other brokers' server.properties are not known here: their number counts as this node's."""
        own_id, known = broker or str(self._node_id), SERVER_PROPERTIES[name]
        values = {each: find_stored_value(self._state, each, known) for each in (own_id, "")}
        static = self._config.value_of(name)
        present = next((value for value in values.values() if value is not None), static)
        values[broker] = None if text is None else known.parse(text)
        count = next((value for value in values.values() if value is not None), static)
        assert isinstance(count, int) and isinstance(present, int)
        check_thread_count(name, count, present)

    def _alter_named(self, resource: AlterConfigsResource) -> list[ConfigRecord]:
        """Returns the records for a group or a client metrics subscription, which need not exist."""
        from config.client_metrics import SubscriptionError, validate_client_metrics
        from config.group import validate_group_configs

        kind, name = resource.resource_type, resource.resource_name
        current = self._state.overrides(kind, name)
        changes = {config.name: _new_value(config, current.get(config.name), {}) for config in resource.configs}
        merged = {key: value for key, value in (current | changes).items() if value is not None}
        try:
            if kind == RESOURCE_CLIENT_METRICS:
                validate_client_metrics(name, merged)
            elif not name:
                raise _invalid_request("Default group resources are not allowed.")
            else:
                validate_group_configs(merged, self._config)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        except SubscriptionError as error:
            raise _invalid_request(str(error)) from error
        return changed_configs(kind, name, {key: value for key, value in changes.items() if value != current.get(key)})


def validated_topic_configs(
    config: ServerConfig, overrides: Mapping[str, str], unchanged: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Returns `overrides`, all configs of one topic, as a dict. Raises KafkaError INVALID_CONFIG for a config that a topic cannot have.

    `unchanged` are configs that the topic already had: unknown ones among them may stay.
    """
    kept = unchanged or {}
    checked = {name: value for name, value in overrides.items() if name in TOPIC_PROPERTIES or kept.get(name) != value}
    unknown = next((name for name in checked if name not in TOPIC_PROPERTIES), None)
    if unknown is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {unknown}")
    try:
        validate_topic_configs(checked, config.topic_defaults)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return dict(overrides)


def changed_configs(resource_type: int, resource_name: str, changes: Mapping[str, str | None]) -> list[ConfigRecord]:
    """Returns the records of `changes`; a value of None deletes the config."""
    return [
        ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value) for name, value in changes.items()
    ]


def _check_form(configs: Sequence[AlterableConfig | ReplacedConfig]) -> None:
    """Raises KafkaError INVALID_REQUEST."""
    if find_duplicates(configs, attrgetter("name")):
        raise _invalid_request("Error due to duplicate config keys")
    nulls: list[str] = []
    unknown: Any = None
    for config in configs:
        operation = getattr(config, "config_operation", AlterOperation.SET)  # AlterConfigs can only set
        if config.value is None and operation != AlterOperation.DELETE:
            nulls.append(config.name)
        if unknown is None and operation not in AlterOperation._value2member_map_:
            unknown = config
    if nulls:
        raise _invalid_request(f"Null value not supported for : {','.join(nulls)}")
    if unknown is not None:
        raise _invalid_request(f"Unknown operation {unknown.config_operation} for config {unknown.name}")


def _new_value(config: AlterableConfig, current: str | None, properties: Mapping[str, Property]) -> str | None:
    """Returns the config's value after the operation; None if it is deleted. Raises KafkaError."""
    operation = AlterOperation(config.config_operation)
    if operation is AlterOperation.DELETE:
        return None
    if operation is AlterOperation.SET:
        return config.value
    known = properties.get(config.name)
    if known is None or known.type is not PropertyType.LIST:
        why = f"Can't {operation.name} to key {config.name} because its type is not LIST."
        if properties is SERVER_PROPERTIES:
            # In Kafka a broker checks the change before the controller does, and it knows only the properties of server.properties.
            why = f"Config value {operation.name.lower()} is not allowed for config key: {config.name}"
            if known is None:
                why = f"Unknown config name: {config.name}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, why)
    parts = [part for part in (known.default_text or "" if current is None else current).split(",") if part]
    changed = _java_parts(config.value or "")
    if operation is AlterOperation.APPEND:
        present = set(parts)
        return _checked_size(",".join([*parts, *(part for part in dict.fromkeys(changed) if part not in present)]))
    left_out = Counter(changed)
    kept = []
    for part in parts:
        if left_out[part] > 0:
            left_out[part] -= 1
        else:
            kept.append(part)
    return ",".join(kept)


def _java_parts(text: str) -> list[str]:
    """Splits as Java's String.split(",") does: empty parts at the end are dropped, but an empty text gives one empty part."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return [] if text and parts == [""] else parts


def _checked_size(value: str) -> str:
    """Returns `value`. Raises KafkaError if APPEND has made it too large for a record."""
    if len(value.encode()) > VALUE_BYTES_MAX:
        why = f"The configuration value cannot be added because it exceeds the maximum value size of {VALUE_BYTES_MAX} bytes."
        raise KafkaError(ErrorCode.INVALID_CONFIG, why)
    return value


def _topic_name(record: ConfigRecord) -> str:
    """Returns the topic whose eligible leader replicas a change of min.insync.replicas affects; "" stands for all topics."""
    return record.resource_name if record.resource_type == RESOURCE_TOPIC else ""


def _check_min_isr_with_elr(broker: str, value: str | None) -> None:
    """With eligible leader replicas all brokers share one min.insync.replicas. Raises KafkaError INVALID_CONFIG."""
    if broker:
        why = f"Broker-level {MIN_IN_SYNC_REPLICAS} cannot be altered while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, why)
    if value is None:
        why = f"Cluster-level {MIN_IN_SYNC_REPLICAS} cannot be removed while ELR is enabled."
        raise KafkaError(ErrorCode.INVALID_CONFIG, why)


def _invalid_request(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
