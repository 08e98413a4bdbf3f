"""GetTelemetrySubscriptions (key 71): which metrics this client is to push. Serves v0.

Behaviour:
- A client without an id is given one. The subscriptions whose criteria it meets are put together: all their metrics, the shortest interval;
  without any, no metrics and five minutes.
- THROTTLING_QUOTA_EXCEEDED for a client that asks again before its interval is over, unless a subscription has changed.
- Numbers are asked for as differences, as by Kafka.

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
