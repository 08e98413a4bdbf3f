"""DescribeConfigs (key 32). Serves v1–v4.

Behaviour:
- Topics and brokers (this one; "" for what is set on all): every config with its value and where it comes from, or those asked
  for. No keys and null keys both mean all. Synonyms only if asked for, the one that wins first. Sensitive values are null.
- An unknown topic: UNKNOWN_TOPIC_OR_PARTITION; another broker's id: INVALID_REQUEST.

Version notes: v3 types, and documentation if asked for.

Not done: BROKER_LOGGER, CLIENT_METRICS and GROUP resources (INVALID_REQUEST). The configs of a group are those of KIP-848's, share
and streams groups; Kafka tells their defaults for any name, and none of them would have an effect here.

Source: kafka.server.ConfigHelper (KIP-133, KIP-226, KIP-569).
"""

from __future__ import annotations

from broker.context import Handler, RequestContext, Services
from broker.metadata.cluster_state import RESOURCE_BROKER, RESOURCE_TOPIC
from broker.metadata.config_control import OTHER_RESOURCES, unsupported
from broker.metadata.config_entries import ConfigDescriber, ConfigEntry
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.topic_names import validate_name
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_KNOWN_RESOURCES = {RESOURCE_TOPIC, RESOURCE_BROKER, *OTHER_RESOURCES}


def build(services: Services) -> Handler:
    cache = services.metadata
    describer = ConfigDescriber(cache.state, services.config, services.node_id)

    def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        unknown = next((resource for resource in request.resources if resource.resource_type not in _KNOWN_RESOURCES), None)
        if unknown is not None:
            why = f"Unexpected resource type {unknown.resource_type} for resource {unknown.resource_name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        return DescribeConfigsResponse(results=[_result(cache, describer, request, resource) for resource in request.resources])

    return handle


def error_response(request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_failed(resource, error) for resource in request.resources])


def _result(
    cache: MetadataCache, describer: ConfigDescriber, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        entries = _entries(cache, describer, resource)
    except KafkaError as error:
        return _failed(resource, error)
    keys = set(resource.configuration_keys or ())
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_described(entry, request) for entry in entries if not keys or entry.name in keys],
    )


def _entries(cache: MetadataCache, describer: ConfigDescriber, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type == RESOURCE_TOPIC:
        validate_name(name)
        if cache.find_topic(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return describer.topic_entries(name)
    if resource.resource_type == RESOURCE_BROKER:
        if not name:
            return describer.default_broker_entries()
        if not name.removeprefix("-").isdecimal() or not name.isascii():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        if int(name) != cache.node_id:
            why = f"Unexpected broker id, expected {cache.node_id} or empty string, but received {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        return describer.broker_entries()
    raise KafkaError(ErrorCode.INVALID_REQUEST, unsupported(resource.resource_type))


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


def _failed(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
