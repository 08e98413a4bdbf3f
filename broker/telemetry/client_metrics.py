"""ClientMetricsManager: which metrics clients are to push, and what they have pushed (Kafka's class of this name, KIP-714).

Owns the client instances. Subscriptions are the configs of client metrics resources; they are read again when one has changed. Kafka
gives what clients push to a plug-in. Here the broker's own Prometheus endpoint serves it by the clients' names, where
`org.apache.kafka.producer.…` is `org_apache_kafka_producer_…`. Without that endpoint ApiVersions does not list these APIs, as in Kafka
without a plug-in.

A client instance that has sent nothing for three push intervals, and at least a minute, is forgotten with its metrics.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from broker.metadata.cluster_state import RESOURCE_CLIENT_METRICS, ClusterState
from broker.network.context import RequestContext
from broker.observability.metrics import GaugeSample
from broker.telemetry.instance import ClientInstance, SeriesByName, Subscription
from broker.telemetry.otlp import Point, read_points
from config.client_metrics import CLIENT_METRICS_PROPERTIES, parse_match
from config.properties import ConfigError
from protocol.compression import Compression, decompress
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from broker.loop.clock import Clock
    from protocol.messages.push_telemetry import PushTelemetryRequest

log = logging.getLogger("barnabas.telemetry")

INSTANCES_MAX = 16_384
"""Clients; beyond it those that were silent for longest are forgotten. Kafka's CACHE_MAX_SIZE."""

SERIES_OF_CLIENT_MAX = 2_000
"""Numbers kept of one client; a Java producer pushes about a hundred. Ours."""

SERIES_MAX = 100_000
"""Numbers kept of all clients, some 30 MB. Ours: anybody may push."""

DECOMPRESSED_BYTES_MAX = 2 * 1024 * 1024
"""Of one push: 100 bytes can become this many, in 6 ms at most. Ours."""

SILENCE_MS_MIN = 60_000
SILENT_INTERVALS_MAX = 3
DEFAULT_INTERVAL_MS = 300_000
ALL_METRICS = "*"

ACCEPTED_COMPRESSION_TYPES = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""In Kafka's order of preference; no compression is accepted without being told."""

RESERVED_IDS = frozenset(number.to_bytes(16, "big") for number in range(100))

_NO_NAME = re.compile(r"[^a-zA-Z0-9_:]")
_CLIENT_LABELS = ("client_instance_id", "client_id", "client_software_name", "client_software_version")


class ClientMetricsManager:
    """See the module's docstring. `new_id` makes 16 random bytes."""

    def __init__(self, state: ClusterState, clock: Clock, new_id: Callable[[], bytes], max_bytes: int) -> None:
        self._state = state
        self._clock = clock
        self._new_id = new_id
        self.max_bytes = max_bytes
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()  # the one that was silent for longest first
        self._subscriptions: dict[str, Subscription] = {}
        self._configs: dict[str, dict[str, str]] = {}  # what the subscriptions were made of
        self._version = 0
        self._series_count = 0

    # -- requests ------------------------------------------------------------------------------------------------------

    def subscribe(self, instance_id: bytes, context: RequestContext) -> ClientInstance:
        """The instance that asks for its subscription, a new one for the zero id. KafkaError THROTTLING_QUOTA_EXCEEDED if it asks again
        before its push interval is over, and nothing has changed."""
        if instance_id == ZERO_UUID:
            instance_id = self._new_id()
            while instance_id in self._instances or instance_id in RESERVED_IDS:
                instance_id = self._new_id()
        instance = self._instance(instance_id, context)
        if not instance.may_ask(self._clock.now_ms()):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        return instance

    def push(self, request: PushTelemetryRequest, context: RequestContext) -> None:
        """Take a client's metrics. KafkaError says why not."""
        if request.client_instance_id in RESERVED_IDS:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        instance = self._instance(request.client_instance_id, context)
        try:
            self._check_push(request, instance)
            if request.metrics:
                self._keep(instance, _read(request))
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.is_terminating = request.terminating
        instance.last_error = ErrorCode.NONE

    def _check_push(self, request: PushTelemetryRequest, instance: ClientInstance) -> None:
        if instance.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not instance.may_push(self._clock.now_ms()) and not request.terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if request.subscription_id != instance.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type not in Compression._value2member_map_:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self.max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)

    def _keep(self, instance: ClientInstance, points: Iterable[Point]) -> None:
        before = len(instance.series)
        for point in points:
            key = point.metric, point.attributes
            if key not in instance.series:
                added = len(instance.series) - before
                if len(instance.series) >= SERIES_OF_CLIENT_MAX or self._series_count + added >= SERIES_MAX:
                    continue
            instance.take(point)
        if instance.instance_id in self._instances:
            self._series_count += len(instance.series) - before

    # -- instances -----------------------------------------------------------------------------------------------------

    def _instance(self, instance_id: bytes, context: RequestContext) -> ClientInstance:
        now_ms = self._clock.now_ms()
        self._forget_the_silent(now_ms)
        self._refresh_subscriptions()
        instance = self._instances.get(instance_id)
        if instance is None:
            if len(self._instances) >= INSTANCES_MAX:
                self._forget(next(iter(self._instances)))
            instance = self._instances[instance_id] = ClientInstance(instance_id, context)
        if instance.version != self._version:
            self._evaluate(instance)
        instance.heard_ms = now_ms
        self._instances.move_to_end(instance_id)
        return instance

    def _evaluate(self, instance: ClientInstance) -> None:
        """Find the subscriptions that match."""
        interval_ms = DEFAULT_INTERVAL_MS
        metrics: dict[str, None] = {}
        for subscription in self._subscriptions.values():
            if subscription.is_for(instance):
                metrics |= dict.fromkeys(subscription.metrics)
                interval_ms = min(interval_ms, subscription.interval_ms)
        chosen = [ALL_METRICS] if ALL_METRICS in metrics else list(metrics)
        told = zlib.crc32(f"{sorted(chosen)}{interval_ms}".encode()) ^ zlib.crc32(instance.instance_id)
        instance.set_subscription(self._version, chosen, interval_ms, told - 2**32 if told >= 2**31 else told)

    def _forget_the_silent(self, now_ms: int) -> None:
        while self._instances:
            oldest = next(iter(self._instances.values()))
            if now_ms - oldest.heard_ms < max(SILENCE_MS_MIN, SILENT_INTERVALS_MAX * oldest.interval_ms):
                return
            self._forget(oldest.instance_id)

    def _forget(self, instance_id: bytes) -> None:
        self._series_count -= len(self._instances.pop(instance_id).series)

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def _refresh_subscriptions(self) -> None:
        current = {name: configs for (kind, name), configs in self._state.configs.items() if kind == RESOURCE_CLIENT_METRICS}
        if current == self._configs:
            return
        self._configs = {name: dict(configs) for name, configs in current.items()}
        self._subscriptions = {name: made for name, configs in current.items() if (made := _subscription(name, configs)) is not None}
        self._version += 1

    # -- metrics -------------------------------------------------------------------------------------------------------

    def samples(self) -> Iterator[GaugeSample]:
        """What clients have pushed, for a scrape: a gauge for each metric, with the client's and its own attributes as labels. They are
        made of a copy when they are read."""
        self._forget_the_silent(self._clock.now_ms())
        return _samples([(instance.labels, instance.series.copy()) for instance in self._instances.values()])


def _read(request: PushTelemetryRequest) -> list[Point]:
    try:
        return read_points(decompress(Compression(request.compression_type), request.metrics, max_bytes=DECOMPRESSED_BYTES_MAX))
    except DecodeError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD) from error


def _samples(clients: list[tuple[tuple[str, ...], SeriesByName]]) -> Iterator[GaugeSample]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    metrics: dict[str, str] = {}
    for client_labels, all_series in clients:
        client = dict(zip(_CLIENT_LABELS, client_labels, strict=True))
        for (metric, attributes), series in all_series.items():
            plain = _printable(metric).removesuffix("_total")
            name = f"{plain}_total" if series.is_sum else plain
            metrics[name] = metric
            labels = {_printable(key): value for key, value in attributes} | client
            found.setdefault(name, []).append((labels, series.value))
    for name, values in sorted(found.items()):
        label_names = tuple(dict.fromkeys(label for labels, _ in values for label in labels))
        rows = tuple((tuple(labels.get(label, "") for label in label_names), value) for labels, value in values)
        yield GaugeSample(name, f"{metrics[name]}, as clients have pushed it", label_names, rows)


def _printable(name: str) -> str:
    """As Prometheus lets names be."""
    printable = _NO_NAME.sub("_", name)
    return printable if printable[:1].isalpha() or printable[:1] == "_" else f"_{printable}"


def _subscription(name: str, configs: dict[str, str]) -> Subscription | None:
    """None for one that cannot be read, say because another version stored it."""
    try:
        values: dict[str, Any] = {key: CLIENT_METRICS_PROPERTIES[key].parse(text) for key, text in configs.items() if key in _KNOWN}
        return Subscription(values.get("metrics", ()), values.get("interval.ms", DEFAULT_INTERVAL_MS), parse_match(values.get("match", ())))
    except ConfigError as error:
        log.warning("client metrics subscription %s is ignored: %s", name, error)
        return None


_KNOWN = frozenset(CLIENT_METRICS_PROPERTIES)
