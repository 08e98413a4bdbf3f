"""PushTelemetry (key 72): metrics of a client, which come out of this broker's Prometheus endpoint. Serves v0.

Behaviour:
- Numbers as gauges and sums are kept by the client's instance id; sums grow by the differences that are pushed.
- INVALID_REQUEST without an id, and after a push that said it was the last; THROTTLING_QUOTA_EXCEEDED before the push interval is over;
  UNKNOWN_SUBSCRIPTION_ID for an outdated subscription; UNSUPPORTED_COMPRESSION_TYPE; TELEMETRY_TOO_LARGE above telemetry.max.bytes;
  INVALID_RECORD for what cannot be decompressed, to 2 MB at most, and read. More than 64 KB are decompressed by the worker.
- Pushes of one instance are taken in their order.
- What does not fit beside 2,000 numbers of one client and 100,000 of all is left out.

Source: ClientMetricsManager.processPushTelemetryRequest (KIP-714).
"""

from __future__ import annotations

from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def build(services: Services) -> Handler:
    assert services.client_metrics is not None, "a broker has them"
    manager = services.client_metrics()

    def handle(context: RequestContext, request: PushTelemetryRequest) -> Any:
        return at_once_or_in_turns(_pushed(context, request))

    def _pushed(context: RequestContext, request: PushTelemetryRequest) -> Work:
        yield from manager.push(request, context)
        return PushTelemetryResponse()

    return handle
