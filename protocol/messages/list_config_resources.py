"""ListConfigResources (key 74): names of what has configs (before Kafka 4.1: ListClientMetricsResources).

Version notes: 0 client metrics alone (KIP-714); 1 resources of the types that are asked for (KIP-1142).
"""

from __future__ import annotations

from ..schema import Array, Int8, Int16, Int32, String, api, message, since, struct


@api(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest:
    """Asks for resources by their types; none means all types."""

    resource_types: Array[Int8] = since(1, default=[])


@struct
class ConfigResource:
    resource_name: String = ""
    resource_type: Int8 = since(1, default=16, ignorable=True)


@message(versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    """Tells name and type of each resource."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: Array[ConfigResource] = []
