"""GetTelemetrySubscriptions (key 71): the metrics that this client shall push. Serves v0.

Behaviour:
- A client without an id gets one. The subscriptions that match the client are merged: all their metrics, and the shortest interval. Without
a match there are no metrics, and the interval is five minutes.
- THROTTLING_QUOTA_EXCEEDED for a client that asks again before its interval is over, unless a subscription has changed.
- Numbers are requested as deltas, as by Kafka.

Source: ClientMetricsManager.processGetTelemetrySubscriptionRequest (KIP-714).
"""

from __future__ import annotations

from broker.handlers.services import Handler, Services
from broker.network.context import RequestContext
from broker.telemetry.client_metrics import ACCEPTED_COMPRESSION_TYPES
from protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse


def build(services: Services) -> Handler:
    assert services.client_metrics is not None, "a broker has them"
    manager = services.client_metrics()

    def handle(context: RequestContext, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
        instance = manager.subscribe(request.client_instance_id, context)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance.instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=list(ACCEPTED_COMPRESSION_TYPES),
            push_interval_ms=instance.interval_ms,
            telemetry_max_bytes=manager.max_bytes,
            delta_temporality=True,
            requested_metrics=instance.metrics,
        )

    return handle
