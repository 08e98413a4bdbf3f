"""DescribeConfigs (key 32). Serves v1–v4.

Behaviour:
- Topics, brokers (this one; "" for what is set on all), groups and client metrics subscriptions (of any name): every config, or the
requested ones, with its value and the source of that. Broker loggers (this broker's): their levels. No keys and null keys both mean all.
Synonyms only if requested; the one that wins comes first. Sensitive values are null.
- A resource that is named twice is answered twice, as by Kafka. Resources that do not fit into an answer's size are POLICY_VIOLATION.
- Without DESCRIBE_CONFIGS on the topic or group: TOPIC_ or GROUP_AUTHORIZATION_FAILED; for the other resources, without it on the cluster,
CLUSTER_AUTHORIZATION_FAILED.
- An unknown topic: UNKNOWN_TOPIC_OR_PARTITION; another broker's id: INVALID_REQUEST.

Version notes: v3 types, and documentation if asked for.

Source: kafka.server.ConfigHelper (KIP-133, KIP-226, KIP-412, KIP-569, KIP-714, KIP-848).
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable
from typing import Any, NamedTuple

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns, in_turns_if_many
from broker.metadata.cluster_state import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from broker.metadata.config_entries import ConfigDescriber, ConfigEntry
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.topic_names import validate_name
from broker.network.answer_size import AnswerSize
from broker.network.context import RequestContext
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import CLUSTER_NAME, AclOperation, ResourceType
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_RIGHTS_ON = {
    RESOURCE_TOPIC: ResourceType.TOPIC,
    RESOURCE_BROKER: ResourceType.CLUSTER,
    RESOURCE_BROKER_LOGGER: ResourceType.CLUSTER,
    RESOURCE_CLIENT_METRICS: ResourceType.CLUSTER,
    RESOURCE_GROUP: ResourceType.GROUP,
}
"""What DESCRIBE_CONFIGS is needed on, by the type of the resource that has the configs."""


class _Described(NamedTuple):
    """The answer for one resource; resources with the same configs share it."""

    configs: list[DescribeConfigsResourceResult]
    size_bytes: int


def build(services: Services) -> Handler:
    return handler(services.metadata, services.config)


def handler(cache: MetadataCache, config: ServerConfig) -> Handler:
    describer = ConfigDescriber(cache.state, config, cache.node_id)

    def handle(context: RequestContext, request: DescribeConfigsRequest) -> Any:
        return at_once_or_in_turns(_answer(cache, describer, context.access, request))

    return handle


def error_response(request: DescribeConfigsRequest, error: KafkaError) -> Any:
    results = [_failed(resource, error) for resource in request.resources]
    return in_turns_if_many(DescribeConfigsResponse(results=results), [results])


def _answer(cache: MetadataCache, describer: ConfigDescriber, access: Access, request: DescribeConfigsRequest) -> Work:
    for resource in request.resources:
        if resource.resource_type not in _RIGHTS_ON:
            why = f"Unexpected resource type {resource.resource_type} for resource {resource.resource_name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    results = []
    answers = _Answers(cache, describer, request)
    for resource in request.resources:
        try:
            _check_right(access, resource)
            described = yield from answers.describe(resource)
        except KafkaError as error:
            results.append(_failed(resource, error))
        else:
            results.append(
                DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name, configs=described.configs)
            )
        yield
    return DescribeConfigsResponse(results=results)


def _check_right(access: Access, resource: DescribeConfigsResource) -> None:
    """Raises KafkaError: TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED."""
    kind = _RIGHTS_ON[resource.resource_type]
    access.require(AclOperation.DESCRIBE_CONFIGS, kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name)


class _Answers:
    """The answers of one request. The configs of a resource are described once, however often it is named, and those of topics without
    configs of their own once for all of them."""

    def __init__(self, cache: MetadataCache, describer: ConfigDescriber, request: DescribeConfigsRequest) -> None:
        self._cache = cache
        self._describer = describer
        self._request = request
        self._size = AnswerSize()
        self._described: dict[tuple[object, ...], _Described] = {}

    def describe(self, resource: DescribeConfigsResource) -> Generator[None, None, _Described]:
        """Returns the answer for a resource. Raises KafkaError if the resource cannot be described, or if no more fits into the answer."""
        subject = self._check(resource)
        keys = frozenset(resource.configuration_keys or ())
        identity = (*subject, keys)
        described = self._described.get(identity)
        if described is None:
            described = self._described[identity] = yield from self._describe(resource, keys)
        self._size.take(described.size_bytes)
        return described

    def _check(self, resource: DescribeConfigsResource) -> tuple[object, ...]:
        """Returns a key that is equal for resources with the same configs. Raises KafkaError if there is nothing to describe."""
        name = resource.resource_name
        if resource.resource_type == RESOURCE_TOPIC:
            validate_name(name)
            if self._cache.find_topic(name) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
            return RESOURCE_TOPIC, *self._cache.state.topic_overrides(name).items()
        if resource.resource_type == RESOURCE_CLIENT_METRICS:
            _check_named(name, "Client metrics subscription name must not be empty")
            return RESOURCE_CLIENT_METRICS, name
        if resource.resource_type == RESOURCE_GROUP:
            _check_named(name, "Group name must not be empty")
            return RESOURCE_GROUP, name
        if resource.resource_type == RESOURCE_BROKER_LOGGER:
            _check_named(name, "Broker id must not be empty")
            self._check_broker(name, f"expected {self._cache.node_id} but received {name}")
        elif name:
            self._check_broker(name, f"expected {self._cache.node_id} or empty string, but received {name}")
        return resource.resource_type, name

    def _check_broker(self, name: str, why: str) -> None:
        if not name.removeprefix("-").isdecimal() or not name.isascii():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        if int(name) != self._cache.node_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, {why}")

    def _describe(self, resource: DescribeConfigsResource, keys: Container[str]) -> Generator[None, None, _Described]:
        configs = []
        size_bytes = 0
        for entry in self._entries(resource):
            if not resource.configuration_keys or entry.name in keys:
                configs.append(_described(entry, self._request))
                size_bytes += _size_bytes(configs[-1])
            yield
        return _Described(configs, size_bytes)

    def _entries(self, resource: DescribeConfigsResource) -> Iterable[ConfigEntry]:
        if resource.resource_type == RESOURCE_TOPIC:
            return self._describer.topic_entries(resource.resource_name)
        if resource.resource_type == RESOURCE_GROUP:
            return self._describer.group_entries(resource.resource_name)
        if resource.resource_type == RESOURCE_CLIENT_METRICS:
            return self._describer.client_metrics_entries(resource.resource_name)
        if resource.resource_type == RESOURCE_BROKER_LOGGER:
            return self._describer.logger_entries()
        return self._describer.broker_entries() if resource.resource_name else self._describer.default_broker_entries()


def _check_named(name: str, why: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def _described(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = []
    if request.include_synonyms:
        synonyms = [DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in entry.synonyms]
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=synonyms,
        config_type=entry.type,
        documentation=entry.documentation() if request.include_documentation else None,
    )


def _size_bytes(config: DescribeConfigsResourceResult) -> int:
    synonyms_bytes = sum(len(each.name) + len(each.value or "") + 3 for each in config.synonyms)
    return len(config.name) + len(config.value or "") + synonyms_bytes + len(config.documentation or "") + 10


def _failed(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
