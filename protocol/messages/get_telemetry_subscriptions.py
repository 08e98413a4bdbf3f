"""GetTelemetrySubscriptions (key 71): which of its metrics a client is to push, and how often (KIP-714)."""

from __future__ import annotations

from ..schema import Array, Bool, Int8, Int16, Int32, String, Uuid, api, message
from ..uuids import ZERO_UUID


@api(key=71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsRequest:
    """Asks for this client's subscription; the zero id asks for an id as well."""

    client_instance_id: Uuid = ZERO_UUID


@message(versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsResponse:
    """Tells the metrics by prefixes ("" stands for all), the interval, and what a push may look like."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: Array[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: Array[String] = []
