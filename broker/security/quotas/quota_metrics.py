"""The metrics of client quotas as data, under Kafka's names, for an exporter.

A metric's group and tags are Kafka's; a user in a tag is sanitized, as there.

Source: ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager (metricName calls), ConnectionQuotaEntity,
org.apache.kafka.common.utils.Sanitizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

THROTTLE_TIME_WINDOW_MS = 30_000
THROTTLE_TIME_WINDOWS_COUNT = 2
"""The defaults of metrics.sample.window.ms and metrics.num.samples, which Kafka's averages of throttle times use."""

SOCKET_SERVER_METRICS = "socket-server-metrics"


class QuotaType(NamedTuple):
    """A kind of client quota: the group of its metrics, and the name and text of what it measures."""

    group: str
    measured: str
    documentation: str


PRODUCE = QuotaType("Produce", "byte-rate", "Tracking byte-rate per user/client-id")
FETCH = QuotaType("Fetch", "byte-rate", "Tracking byte-rate per user/client-id")
REQUEST = QuotaType("Request", "request-time", "Tracking request-time per user/client-id")
CONTROLLER_MUTATION = QuotaType("ControllerMutation", "tokens", "Tracking remaining tokens in the token bucket per user/client-id")


class QuotaMetric(NamedTuple):
    """A metric's value now. NaN for an average of nothing."""

    group: str
    name: str
    tags: Mapping[str, str]
    value: float


def sanitize(name: str) -> str:
    """Percent-encodes a user's name for a metric's tag, as Java's URLEncoder does, but for space (%20) and * (%2A)."""
    from urllib.parse import quote  # late: it takes 2 ms, and few nodes have quotas

    return quote(name, safe="").replace("~", "%7E")
