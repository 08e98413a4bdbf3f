"""PushTelemetry (key 72): a client's metrics (KIP-714)."""

from __future__ import annotations

from ..schema import Bool, Bytes, Int8, Int16, Int32, Uuid, api, message
from ..uuids import ZERO_UUID


@api(key=72, versions=(0, 0), flexible=0)
class PushTelemetryRequest:
    """Brings metrics as OpenTelemetry's MetricsData v1, perhaps compressed."""

    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


@message(versions=(0, 0), flexible=0)
class PushTelemetryResponse:
    """Tells an error code."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
