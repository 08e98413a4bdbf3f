"""What the broker counts: plain integers that the loop adds to, read at a scrape. The counterpart of Kafka's Yammer metrics.

Owned by the loop: nothing here locks, and only the loop calls it. Hot paths hold on to the object they count in
(`self._topic_metrics = metrics.topic(name)`, then `self._topic_metrics.messages_in += n`); a gauge is a callback that is asked when
someone scrapes. `snapshot` copies everything into values that another thread may render (broker/server/metrics_http.py).
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

# A bucket for each quarter of a power of two of nanoseconds: quantiles are within 12 %. 2**43 ns are over two hours.
BUCKETS_PER_OCTAVE = 4
BUCKETS_COUNT = 44 * BUCKETS_PER_OCTAVE
LAST_BUCKET = BUCKETS_COUNT - 1

VALUES_PER_TURN = 1_000
"""Values that are copied between two turns of the loop: some milliseconds. Few, as a scrape has to wait for each turn of a busy loop."""


class Piecewise(NamedTuple):
    """What is gathered from very many things, such as partitions, with turns of the loop in between: `values` must bear that things come
    and go meanwhile. `finish` makes of all values what is asked for."""

    values: Iterator[Any]
    finish: Callable[[list[Any]], Any] = tuple


GaugeValue = float | Iterable[tuple[tuple[str, ...], float]] | Piecewise
"""A number, or for a gauge with labels (label values, number) pairs; or what makes either."""


class BrokerTopicMetrics:
    """One topic's counters (kafka.server:type=BrokerTopicMetrics). Adding to them is the caller's affair."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "messages_in",
        "replication_bytes_in",
        "replication_bytes_out",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0  # to followers; what consumers get is in bytes_out
        self.total_produce_requests = 0
        self.total_fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0

    def add(self, other: BrokerTopicMetrics) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class RequestMetrics:
    """One API version's requests: how many, how long in total, and a histogram of their times."""

    __slots__ = ("_buckets", "api_name", "total_ns", "version")

    def __init__(self, api_name: str = "", version: int = 0) -> None:
        self.api_name = api_name
        self.version = version
        self.total_ns = 0
        self._buckets = array("q", bytes(8 * BUCKETS_COUNT))

    @property
    def buckets(self) -> list[int]:
        return self._buckets.tolist()

    @property
    def requests_count(self) -> int:
        return sum(self._buckets)

    def record(self, elapsed_ns: int) -> None:
        """Count a request that took `elapsed_ns` from its decoding to its response. Costs 0.2 µs."""
        self.total_ns += elapsed_ns
        octave = elapsed_ns.bit_length()
        # Below 8 ns there are no quarters to tell apart, and no request either.
        index = (octave << 2 | (elapsed_ns >> (octave - 3)) & 3) if octave > 2 else 0
        self._buckets[index if index < BUCKETS_COUNT else LAST_BUCKET] += 1


def quantile_ns(buckets: list[int], quantile: float) -> float:
    """The time that `quantile` of the requests stayed under, by the middle of its bucket; 0 when there were none."""
    wanted = quantile * sum(buckets)
    seen = 0
    for index, count in enumerate(buckets):
        seen += count
        if count and seen >= wanted:
            octave, quarter = index >> 2, index & 3
            return (quarter + 4.5) * 2.0 ** (octave - 3)
    return 0.0


class Gauge(NamedTuple):
    """A value that is asked for at a scrape. `name` is the Prometheus name."""

    name: str
    documentation: str
    label_names: tuple[str, ...]
    read: Callable[[], GaugeValue]


class GaugeSample(NamedTuple):
    """A gauge's values at one moment."""

    name: str
    documentation: str
    label_names: tuple[str, ...]
    values: tuple[tuple[tuple[str, ...], float], ...]


class RequestSample(NamedTuple):
    """One API version's requests up to one moment."""

    api_name: str
    version: int
    requests_count: int
    total_ns: int
    buckets: list[int]


class MetricsSnapshot(NamedTuple):
    """All metrics at one moment; a copy."""

    all_topics: dict[str, int]
    topics: dict[str, dict[str, int]]
    requests: list[RequestSample]
    request_errors: dict[tuple[int, int], int]
    refused_requests: dict[tuple[str, str], int]
    connections: dict[str, int]
    connections_created: dict[str, int]
    authentications: dict[tuple[str, str], int]
    """By listener and outcome."""
    gauges: list[GaugeSample]
    collected: list[Iterable[GaugeSample]]
    """What collectors have gathered, which the renderer turns into gauges."""


class Metrics:
    """All of one broker's metrics."""

    def __init__(self) -> None:
        self._topics: dict[str, BrokerTopicMetrics] = {}
        self._deleted_topics = BrokerTopicMetrics()
        self._requests: list[RequestMetrics] = []
        self._request_errors: dict[tuple[int, int], int] = {}
        self._refused_requests: dict[tuple[str, str], int] = {}
        self._gauges: dict[str, Gauge] = {}
        self._collectors: list[Callable[[], Iterable[GaugeSample] | Piecewise]] = []
        self.connections: dict[str, int] = {}
        """Open connections by listener name."""
        self.connections_created: dict[str, int] = {}
        self._authentications: dict[tuple[str, str], int] = {}

    def topic(self, name: str) -> BrokerTopicMetrics:
        """The counters of topic `name`, to hold on to while it exists."""
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = BrokerTopicMetrics()
        return found

    def forget_topic(self, name: str) -> None:
        """Drop a deleted topic's counters. The sums over all topics keep what it counted: counters never go back."""
        found = self._topics.pop(name, None)
        if found is not None:
            self._deleted_topics.add(found)

    def request(self, api_name: str, version: int) -> RequestMetrics:
        """The counters of one API version, to hold on to."""
        for each in self._requests:
            if each.version == version and each.api_name == api_name:
                return each
        found = RequestMetrics(api_name, version)
        self._requests.append(found)
        return found

    def request_error(self, api_key: int, error_code: int) -> None:
        """Count a request that was answered with an error as a whole."""
        key = (api_key, int(error_code))
        self._request_errors[key] = self._request_errors.get(key, 0) + 1

    def request_refused(self, api_name: str, limit: str) -> None:
        """Count a request that is beyond the limit which the property `limit` sets."""
        key = (api_name, limit)
        self._refused_requests[key] = self._refused_requests.get(key, 0) + 1

    def connection_count(self, listener_name: str, change: int) -> None:
        """A connection of `listener_name` came (+1) or went (-1)."""
        self.connections[listener_name] = self.connections.get(listener_name, 0) + change
        if change > 0:
            self.connections_created[listener_name] = self.connections_created.get(listener_name, 0) + change

    def authentication(self, listener_name: str, outcome: str) -> None:
        """A client of the listener was authenticated or refused: `outcome` is successful_ or failed_ with authentication or
        reauthentication (Selector's metrics)."""
        key = listener_name, outcome
        self._authentications[key] = self._authentications.get(key, 0) + 1

    def add_gauge(self, name: str, documentation: str, read: Callable[[], GaugeValue], label_names: tuple[str, ...] = ()) -> None:
        """Ask `read` at every scrape. A gauge of the same name is replaced. One whose name ends with `_total` is a counter: it only grows.

        Names follow the usual JMX-exporter rules: `kafka_server_replicamanager_partitioncount`, `kafka_log_log_size` with the
        labels topic and partition, `kafka_server_delayedoperationpurgatory_purgatorysize` with delayedoperation.
        """
        self._gauges[name] = Gauge(name, documentation, label_names, read)

    def add_collector(self, collect: Callable[[], Iterable[GaugeSample] | Piecewise]) -> None:
        """Ask `collect` at every scrape for gauges of names that are not known before. It copies what it needs; the gauges are made of that
        when they are read, in another thread."""
        self._collectors.append(collect)

    def snapshot(self) -> MetricsSnapshot:
        """A copy for another thread to render, of one moment."""
        *_, taken = self._take()
        assert taken is not None
        return taken

    async def snapshot_in_turns(self) -> MetricsSnapshot:
        """As `snapshot`, but the loop does other work meanwhile: with 10,000 partitions to copy it would be held for 0.2 s."""
        for taken in self._take():
            if taken is not None:
                return taken
            await asyncio.sleep(0)
        raise AssertionError("the last that comes is the snapshot")

    def _take(self) -> Iterator[MetricsSnapshot | None]:
        """Yields None where the loop may do something else, and the snapshot at the end."""
        # Topics that are deleted meanwhile count as they were here: a sum never goes back.
        topics = list(self._topics.items())
        all_topics = BrokerTopicMetrics()
        all_topics.add(self._deleted_topics)
        by_topic: dict[str, dict[str, int]] = {}
        work = _Work()
        for name, counters in topics:
            all_topics.add(counters)
            by_topic[name] = _as_dict(counters)
            if work.is_enough(1):
                yield None
        gauges: list[GaugeSample] = []
        for gauge in list(self._gauges.values()):
            value = yield from _whole(gauge.read(), work)
            values = (((), value),) if isinstance(value, int | float) else tuple(value)
            gauges.append(GaugeSample(gauge.name, gauge.documentation, gauge.label_names, values))
        collected: list[Iterable[GaugeSample]] = []
        for collect in self._collectors:
            collected.append((yield from _whole(collect(), work)))
        yield MetricsSnapshot(
            all_topics=_as_dict(all_topics),
            topics=by_topic,
            requests=[
                RequestSample(each.api_name, each.version, each.requests_count, each.total_ns, each.buckets) for each in self._requests
            ],
            request_errors=self._request_errors.copy(),
            refused_requests=self._refused_requests.copy(),
            connections=self.connections.copy(),
            connections_created=self.connections_created.copy(),
            authentications=self._authentications.copy(),
            gauges=gauges,
            collected=collected,
        )


class _Work:
    """How much is done since the loop had its last turn."""

    def __init__(self) -> None:
        self.values_left = VALUES_PER_TURN

    def is_enough(self, values_count: int) -> bool:
        """Whether it is time for a turn, after so many values more."""
        self.values_left -= values_count
        if self.values_left > 0:
            return False
        self.values_left = VALUES_PER_TURN
        return True


def _whole(value: Any, work: _Work) -> Generator[None, None, Any]:
    """The value itself, or what a Piecewise makes."""
    if not isinstance(value, Piecewise):
        return value
    values: list[Any] = []
    while piece := list(islice(value.values, work.values_left)):
        values += piece
        if work.is_enough(len(piece)):
            yield
    return value.finish(values)


def _as_dict(counters: BrokerTopicMetrics) -> dict[str, int]:
    return {name: getattr(counters, name) for name in counters.__slots__}
