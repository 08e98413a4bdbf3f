"""ListConfigResources (key 74): names of resources with configs. Serves v0–v1.

Behaviour:
- Topics, brokers, their loggers, and the client metrics subscriptions and groups that configs are set on; of the types that are asked
  for, or of all. UNSUPPORTED_VERSION for another type.

Version notes: v0 is ListClientMetricsResources, for subscriptions alone (KIP-714); v1 KIP-1142.

Source: KafkaApis.handleListConfigResources.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns
from broker.metadata.cluster_state import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from broker.metadata.metadata_cache import MetadataCache
from broker.network.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.list_config_resources import ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse

ALL_TYPES = (RESOURCE_GROUP, RESOURCE_CLIENT_METRICS, RESOURCE_BROKER_LOGGER, RESOURCE_BROKER, RESOURCE_TOPIC)


def build(services: Services) -> Handler:
    metadata = services.metadata

    def handle(context: RequestContext, request: ListConfigResourcesRequest) -> Any:
        if context.api_version == 0:
            return at_once_or_in_turns(_listed(metadata, (RESOURCE_CLIENT_METRICS,)))
        wanted = set(request.resource_types)
        if not wanted <= set(ALL_TYPES):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return at_once_or_in_turns(_listed(metadata, [kind for kind in ALL_TYPES if kind in wanted or not wanted]))

    return handle


def _listed(metadata: MetadataCache, kinds: Iterable[int]) -> Work:
    listed: list[ConfigResource] = []
    for kind in kinds:
        for name in _names(metadata, kind):
            listed.append(ConfigResource(resource_name=name, resource_type=kind))
            yield
    return ListConfigResourcesResponse(config_resources=listed)


def _names(metadata: MetadataCache, kind: int) -> list[str]:
    state = metadata.state
    if kind == RESOURCE_TOPIC:
        return list(state.topics)
    if kind in (RESOURCE_BROKER, RESOURCE_BROKER_LOGGER):
        return [str(node_id) for node_id in state.brokers]
    return [name for of, name in state.configs if of == kind]
