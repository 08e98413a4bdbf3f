"""PushTelemetry (key 72): metrics of a client, which this broker's Prometheus endpoint exposes. Serves v0.

Behaviour:
- Numbers as gauges and sums are kept by the client's instance id; sums grow by the differences that are pushed.
- INVALID_REQUEST without an id, and after a push that said it was the last; THROTTLING_QUOTA_EXCEEDED before the push interval is over;
UNKNOWN_SUBSCRIPTION_ID for an outdated subscription; UNSUPPORTED_COMPRESSION_TYPE; TELEMETRY_TOO_LARGE above telemetry.max.bytes;
INVALID_RECORD for metrics that cannot be parsed or decompressed, to 2 MB at most.
- At most 2,000 numbers of one client and 100,000 of all clients are kept; others are dropped. So are numbers after the first 20,000 fields
of a push, which are some 1,300 numbers.

Source: ClientMetricsManager.processPushTelemetryRequest (KIP-714).
"""

from __future__ import annotations

from broker.handlers.services import Handler, Services
from broker.network.context import RequestContext
from protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def build(services: Services) -> Handler:
    assert services.client_metrics is not None, "a broker has them"
    manager = services.client_metrics()

    def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
        manager.push(request, context)
        return PushTelemetryResponse()

    return handle
