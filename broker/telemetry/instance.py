"""One client instance as this broker knows it: its subscription, when it asked and pushed, and what it has pushed (KIP-714)."""

from __future__ import annotations

from typing import NamedTuple

from broker.network.context import RequestContext
from broker.telemetry.otlp import Point
from config.safe_patterns import SafePattern
from protocol.errors import ErrorCode
from protocol.uuids import uuid_to_text

_MAY_ASK_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class Subscription(NamedTuple):
    """Metrics by prefix, "*" for all; `match` has what a client's parameters must be."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: dict[str, SafePattern]

    def is_for(self, instance: ClientInstance) -> bool:
        return all(pattern.matches(instance.parameters[parameter]) for parameter, pattern in self.match.items())


class Series(NamedTuple):
    """A number that is pushed again and again. A sum's is what was counted in all."""

    value: float
    is_sum: bool


SeriesByName = dict[tuple[str, tuple[tuple[str, str], ...]], Series]
"""By the metric and its attributes."""


class ClientInstance:
    """See the module's docstring. Owner: ClientMetricsManager."""

    __slots__ = (
        "_asked_ms",
        "_pushed_ms",
        "heard_ms",
        "instance_id",
        "interval_ms",
        "is_terminating",
        "labels",
        "last_error",
        "metrics",
        "parameters",
        "series",
        "subscription_id",
        "version",
    )

    def __init__(self, instance_id: bytes, context: RequestContext) -> None:
        self.instance_id = instance_id
        connection = context.connection
        text = uuid_to_text(instance_id)
        self.parameters = {
            "client_instance_id": text,
            "client_id": context.client_id,
            "client_software_name": connection.client_software_name,
            "client_software_version": connection.client_software_version,
            "client_source_address": connection.client_host,
            "client_source_port": "",  # which is not known here: a subscription that asks for it matches no client
        }
        self.labels = (text, context.client_id, connection.client_software_name, connection.client_software_version)
        self.version = -1
        self.metrics: list[str] = []
        self.interval_ms = 0
        self.subscription_id = 0
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self.heard_ms = 0
        self.series: SeriesByName = {}
        self._asked_ms = 0
        self._pushed_ms = 0

    def set_subscription(self, version: int, metrics: list[str], interval_ms: int, subscription_id: int) -> None:
        """The subscriptions have changed: the client may ask for its own at once."""
        self.version = version
        self.metrics = metrics
        self.interval_ms = interval_ms
        self.subscription_id = subscription_id
        self._asked_ms = self._pushed_ms = 0
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    def may_ask(self, now_ms: int) -> bool:
        """Whether its subscription may be asked for again; if so, it counts as asked for now."""
        if now_ms - max(self._asked_ms, self._pushed_ms) >= self.interval_ms:
            self._asked_ms = now_ms
            return True
        return self.last_error in _MAY_ASK_AGAIN

    def may_push(self, now_ms: int) -> bool:
        """Whether a push is not too early, as above. The first one after the subscription was asked for may come at any time: a client
        waits between half and one and a half intervals."""
        if self._asked_ms <= self._pushed_ms and now_ms - self._pushed_ms < self.interval_ms:
            return False
        self._pushed_ms = now_ms
        return True

    def take(self, point: Point) -> None:
        key = point.metric, point.attributes
        known = self.series.get(key)
        value = point.value + known.value if point.is_delta and known is not None else point.value
        self.series[key] = Series(value, point.is_sum)
