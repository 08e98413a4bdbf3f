"""commit_progress: the progress of streams in a group, and as metrics, from what Spark reports after each batch.

It works for each source that reports Kafka's offsets: ours, and Spark's own `kafka`. Nothing here may end a query: what fails is a warning.

| metric | |
| --- | --- |
| barnabas_spark_rows_total{query} | rows that batches have read since the listener was added |
| barnabas_spark_offset{query,topic,partition} | the end of the last batch |
| barnabas_spark_lag{query,topic,partition} | from there to the partition's end, which each scrape asks for: it grows if a query hangs |
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager

from .client.cluster import Place, parse_servers
from .client.fetching import LATEST, list_offsets
from .client.groups import Committed, commit_offsets, open_group_cluster
from .client.security import read_security
from .errors import BarnabasError, OptionError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric
    from pyspark.sql import SparkSession

log = logging.getLogger("barnabas.spark")

SERVERS = "kafka.bootstrap.servers"
LABELS = ("query", "topic", "partition")


class Reached(NamedTuple):
    """What a query has done: its last batch and where that ends, and rows since it is watched."""

    name: str
    batch: int = -1
    rows: int = 0
    offsets: Mapping[Place, int] = {}


class Progress:
    """What is known of the queries, and their group. Spark's thread writes, a scrape's thread reads."""

    def __init__(self, group: str, kafka: Mapping[str, str]) -> None:
        """OptionError for a group or options that cannot be used."""
        if not group.strip():
            raise OptionError("group is empty: it is the name of the group in which the progress is noted")
        options = {name.lower(): text for name, text in kafka.items()}
        servers = options.get(SERVERS, "")
        parse_servers(servers)
        self._group = group
        self._cluster = open_group_cluster(servers, read_security(options))
        self._lock = threading.Lock()  # the cluster serves one thread at a time
        self._reached: dict[str, Reached] = {}  # by the query's id, which stays over its restarts
        self._is_failing = False

    def observe(self, query_id: str, name: str, *, batch: int, rows: int, ends: Mapping[Place, int]) -> None:
        """A batch of the query has ended there. One that was seen already may come again. Raises nothing that a broker causes."""
        before = self._reached.get(query_id, Reached(name))
        if batch < before.batch:
            return
        counted = rows if batch > before.batch else 0
        self._reached[query_id] = Reached(name, batch, before.rows + counted, {**before.offsets, **ends})
        if not ends:
            return
        try:
            with self._lock:
                commit_offsets(self._cluster, self._group, {place: Committed(offset) for place, offset in ends.items()})
            self._is_failing = False
        except (BarnabasError, OSError) as error:
            self._warn(f"the progress of {name} is not noted in the group {self._group}: {error}")

    def collect(self) -> Iterator[Metric]:
        """For a registry of prometheus-client, at each scrape."""
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        rows = CounterMetricFamily("barnabas_spark_rows", "Rows that the batches of a query have read.", labels=LABELS[:1])
        offset = GaugeMetricFamily("barnabas_spark_offset", "Where the last batch of a query ends.", labels=LABELS)
        lag = GaugeMetricFamily("barnabas_spark_lag", "Offsets from there to the end of the partition.", labels=LABELS)
        for reached in list(self._reached.values()):
            rows.add_metric([reached.name], reached.rows)
            ends = self._ends(reached.offsets)
            for (topic, partition), reached_offset in sorted(reached.offsets.items()):
                labels = [reached.name, topic, str(partition)]
                offset.add_metric(labels, reached_offset)
                if (topic, partition) in ends:
                    lag.add_metric(labels, max(ends[topic, partition] - reached_offset, 0))
        yield from (rows, offset, lag)

    def close(self) -> None:
        with self._lock:
            self._cluster.close()

    def _ends(self, places: Mapping[Place, int]) -> dict[Place, int]:
        """The ends of these partitions; none of a topic whose brokers do not tell them."""
        partitions: dict[str, list[int]] = {}
        for topic, partition in places:
            partitions.setdefault(topic, []).append(partition)
        found: dict[Place, int] = {}
        for topic, numbers in partitions.items():
            try:
                with self._lock:
                    ends = list_offsets(self._cluster, topic, numbers, LATEST)
                found |= {(topic, number): end for number, end in ends.items()}
            except (BarnabasError, OSError) as error:
                self._warn(f"the lag of {topic} is unknown: {error}")
        return found

    def _warn(self, line: str) -> None:
        """Once, until a commit succeeds again."""
        if not self._is_failing:
            log.warning("%s", line)
        self._is_failing = True


class ProgressListener(StreamingQueryListener):
    """Hands the progress of one query on, or that of all queries of a session."""

    def __init__(self, progress: Progress, query_id: str | None) -> None:
        self._progress = progress
        self._query_id = query_id

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        self.hand_on(event.progress)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        pass

    def hand_on(self, report: Any) -> None:
        """`report` is a StreamingQueryProgress."""
        if self._query_id in (None, str(report.id)):
            ends: dict[Place, int] = {}
            for source in report.sources:
                ends |= offsets_of(source.endOffset)
            name = report.name or str(report.id)
            self._progress.observe(str(report.id), name, batch=report.batchId, rows=report.numInputRows, ends=ends)


def listen(of: StreamingQuery | SparkSession, group: str, kafka: Mapping[str, str], registry: CollectorRegistry | None) -> ProgressListener:
    """As `barnabas.spark.commit_progress`."""
    progress = Progress(group, kafka)
    if isinstance(of, StreamingQuery):
        listener = ProgressListener(progress, str(of.id))
        StreamingQueryManager(of._jsq.sparkSession().streams()).addListener(listener)
        if (last := of.lastProgress) is not None:
            listener.hand_on(last)  # it may have ended by now, or have nothing to do
    else:
        listener = ProgressListener(progress, None)
        of.streams.addListener(listener)
    if registry is not None:
        registry.register(progress)
    return listener


def offsets_of(told: Any) -> dict[Place, int]:
    """The offsets of a source's report: {"topic": {"0": 12}} of Spark's own source, {"topic": {"id": "…", "offsets": {"0": 12}}} of ours.
    Empty for what is neither: other sources report other things, and Spark writes an unknown offset in several ways."""
    try:
        topics = json.loads(told) if isinstance(told, str) else told
        return {
            (topic, int(partition)): int(offset)
            for topic, offsets in topics.items()
            for partition, offset in offsets.get("offsets", offsets).items()
        }
    except (AttributeError, TypeError, ValueError):
        return {}
