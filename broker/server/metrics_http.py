"""Metrics over HTTP for Prometheus: `GET /metrics` on `barnabas.metrics.listener`, named as the usual JMX-exporter rules name Kafka's,
so that dashboards made for Kafka show data. `GET /health` answers while the loop turns, `GET /ready` says whether work may be sent here.

The loop takes the snapshot, in many turns; a thread renders it. prometheus-client is imported at the first scrape (18 ms), not at start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from broker.loop.clock import Clock
from broker.network.listening_sockets import ListenError, ListeningSockets
from broker.observability.limited_log import LimitedLog
from broker.observability.metrics import Metrics, MetricsSnapshot, quantile_ns

REQUEST_HEAD_MAX_BYTES = 8192
REQUEST_DEADLINE_S = 5.0
# Concurrent scrapes. More are refused, because each costs the loop a snapshot.
CONNECTIONS_MAX = 8
AUTHENTICATION_OUTCOMES = ("successful_authentication", "failed_authentication", "successful_reauthentication", "failed_reauthentication")
CONNECTION_PREFIXES = ("kafka_server_socketservermetrics", "kafka_server_socket_server_metrics")
"""The rules of the JMX exporter in use differ in what they make of `socket-server-metrics`: dashboards ask for one or the other."""

QUANTILES = (0.5, 0.75, 0.95, 0.99, 0.999)


class MetricsServer:
    """The HTTP side of one `Metrics`. Owned by server.py, which starts and closes it."""

    def __init__(
        self,
        metrics: Metrics,
        clock: Clock,
        why_not_ready: Callable[[], str] = lambda: "",
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`why_not_ready` tells /ready: a line, or "" if the node is ready. `refresh` is awaited before each scrape."""
        self._metrics = metrics
        self._refresh = refresh
        self._why_not_ready = why_not_ready
        self._log = LimitedLog(logging.getLogger("barnabas.metrics"), clock)
        self._sockets = ListeningSockets("metrics")
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._sockets.port, "the metrics server was not started"
        return self._sockets.port

    async def start(self, host: str, port: int) -> None:
        """Listen and serve. Raises ListenError if that fails."""
        self._sockets.bind(host, port)
        try:
            self._sockets.listen()
        except ListenError:
            self._sockets.close()
            raise
        for listening in self._sockets.sockets:
            self._servers.append(await asyncio.start_server(self._accept, sock=listening, limit=REQUEST_HEAD_MAX_BYTES))

    async def close(self) -> None:
        """Stop listening and drop open connections."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        serving = list(self._connections)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        for server in servers:
            await server.wait_closed()
        self._sockets.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) <= CONNECTIONS_MAX:
                await asyncio.wait_for(self._serve(reader, writer), REQUEST_DEADLINE_S)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # The connection of a scraper that disconnected, was too slow or sent nonsense is closed; it will come again.
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, target = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path = target.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            response = _response("405 Method Not Allowed", "text/plain", b"")
        elif path == "/health":  # a node without a log directory stops, so that an answer is all that there is to say
            response = _response("200 OK", "text/plain", b"healthy\n")
        elif path == "/ready":
            why = self._why_not_ready()
            response = _response("503 Service Unavailable" if why else "200 OK", "text/plain", f"{why or 'ready'}\n".encode())
        elif path not in ("/metrics", "/"):
            response = _response("404 Not Found", "text/plain", b"there are /metrics, /health and /ready\n")
        else:
            response = await self._metrics_response()
        writer.write(response if method != "HEAD" else response.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        await writer.drain()

    async def _metrics_response(self) -> bytes:
        if self._refresh is not None:
            await self._refresh()
        snapshot = await self._metrics.snapshot_in_turns()
        try:
            body = await asyncio.get_running_loop().run_in_executor(None, render, snapshot)
        except Exception as e:
            self._log.error("metrics", "metrics cannot be rendered", exc_info=e)
            return _response("500 Internal Server Error", "text/plain", b"")
        return _response("200 OK", "text/plain; version=0.0.4; charset=utf-8", body)


def render(snapshot: MetricsSnapshot) -> bytes:
    """`snapshot` in Prometheus' text format, with the process's own CPU time, memory and descriptors."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_SnapshotCollector(snapshot))
    return generate_latest(registry)


class _SnapshotCollector:
    """A prometheus-client collector: yields the metric families of one snapshot."""

    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Any]:
        return ()

    def collect(self) -> Iterator[Any]:
        yield from self._topic_families()
        yield from self._request_families()
        yield from self._connection_families()
        yield from self._gauge_families()

    def _topic_families(self) -> Iterator[Any]:
        """`…messagesin_total` without a label is the sum over all topics, as Kafka's MBean without a topic is."""
        from prometheus_client.core import CounterMetricFamily

        for name, total in self._snapshot.all_topics.items():
            metric = f"kafka_server_brokertopicmetrics_{name.replace('_', '')}"
            family = CounterMetricFamily(metric, f"{name.replace('_', ' ')}, over all topics and by topic", labels=("topic",))
            family.add_sample(f"{metric}_total", {}, total)
            for topic, counters in self._snapshot.topics.items():
                family.add_metric((topic,), counters[name])
            yield family

    def _request_families(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, SummaryMetricFamily

        requests = CounterMetricFamily("kafka_network_requestmetrics_requests", "requests answered", labels=("request", "version"))
        buckets_by_api: dict[str, list[int]] = {}
        totals_by_api: dict[str, tuple[int, int]] = {}
        for each in self._snapshot.requests:
            requests.add_metric((each.api_name, str(each.version)), each.requests_count)
            known = buckets_by_api.get(each.api_name)
            merged = each.buckets if known is None else [a + b for a, b in zip(known, each.buckets, strict=True)]
            buckets_by_api[each.api_name] = merged
            count, total_ns = totals_by_api.get(each.api_name, (0, 0))
            totals_by_api[each.api_name] = (count + each.requests_count, total_ns + each.total_ns)
        yield requests
        times = SummaryMetricFamily(
            "kafka_network_requestmetrics_totaltimems", "milliseconds from decoding to response", labels=("request",)
        )
        for api_name, buckets in buckets_by_api.items():
            for quantile in QUANTILES:
                labels = {"request": api_name, "quantile": str(quantile)}
                times.add_sample("kafka_network_requestmetrics_totaltimems", labels, quantile_ns(buckets, quantile) / 1e6)
            count, total_ns = totals_by_api[api_name]
            times.add_metric((api_name,), count_value=count, sum_value=total_ns / 1e6)
        yield times
        yield self._error_family()
        refused = CounterMetricFamily(
            "barnabas_refused_requests", "requests beyond a limit, whose connections were closed", labels=("request", "limit")
        )
        for (api_name, limit), count in self._snapshot.refused_requests.items():
            refused.add_metric((api_name, limit), count)
        yield refused

    def _error_family(self) -> Any:
        from prometheus_client.core import CounterMetricFamily

        from protocol.apis import DECLARED
        from protocol.errors import ErrorCode

        errors = CounterMetricFamily(
            "kafka_network_requestmetrics_errors", "requests answered with an error as a whole", labels=("request", "error")
        )
        for (api_key, error_code), count in self._snapshot.request_errors.items():
            api = DECLARED.get(api_key)
            errors.add_metric((api.name if api else str(api_key), ErrorCode(error_code).name), count)
        return errors

    def _connection_families(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for prefix in CONNECTION_PREFIXES:
            counts = GaugeMetricFamily(f"{prefix}_connection_count", "open connections", labels=("listener",))
            for listener_name, count in self._snapshot.connections.items():
                counts.add_metric((listener_name,), count)
            yield counts
            created = CounterMetricFamily(f"{prefix}_connection_creation", "connections accepted", labels=("listener",))
            for listener_name, count in self._snapshot.connections_created.items():
                created.add_metric((listener_name,), count)
            yield created
            for outcome in AUTHENTICATION_OUTCOMES:
                documentation = f"{outcome.replace('_', ' ')}s, of TLS and SASL"
                family = CounterMetricFamily(f"{prefix}_{outcome}", documentation, labels=("listener",))
                for (listener_name, found), count in self._snapshot.authentications.items():
                    if found == outcome:
                        family.add_metric((listener_name,), count)
                yield family

    def _gauge_families(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for gauge in chain(self._snapshot.gauges, *self._snapshot.collected):
            make = CounterMetricFamily if gauge.name.endswith("_total") else GaugeMetricFamily
            family = make(gauge.name, gauge.documentation, labels=gauge.label_names)
            for labels, value in gauge.values:
                family.add_metric(labels, value)
            yield family


def _response(status: str, content_type: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode("latin-1") + body
