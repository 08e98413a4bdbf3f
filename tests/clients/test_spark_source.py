"""Spark's stock Kafka source against the broker: batch and streaming, by position and time, over a kill of either side."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas.spark import commit_progress
from tests.clients.topics import create_topic, eventually
from tests.pipeline.spark_support import CHECKOUT, environment, kafka_options, kill_group, needs_java, produce, spark
from tests.support.messages import Message
from tests.support.process import LineReader, ServerProcess
from tests.support.secured_cluster import Endpoint, plain

__all__ = ["spark"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), needs_java()]

QUERY_TIMEOUT_S = 180.0
POLL_INTERVAL_S = 0.1


def numbered(count: int, *, partitions: int = 1, first: int = 0, timestamp_ms: int | None = None) -> list[Message]:
    return [Message(i % partitions, b"k%d" % i, b"%d" % i, (), timestamp_ms) for i in range(first, first + count)]


def read(spark: SparkSession, endpoint: Endpoint, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("kafka").options(**kafka_options(endpoint)).option("subscribe", topic)
    return reader.options(**options).load()


def stream(spark: SparkSession, endpoint: Endpoint, subscription: tuple[str, str], **options: str) -> DataFrame:
    reader = spark.readStream.format("kafka").options(**kafka_options(endpoint)).option(*subscription)
    return reader.options(startingOffsets="earliest", **options).load()


def values(rows: list[Row]) -> list[int]:
    return sorted(int(row.value) for row in rows)


def wait_until(condition: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(POLL_INTERVAL_S)


@pytest.mark.secured
def test_batch_read_gives_every_column(spark: SparkSession, endpoint: Endpoint, topic_name: str) -> None:
    create_topic(endpoint.server, topic_name, partitions=2)
    now_ms = int(time.time() * 1000)
    produce(endpoint.server, topic_name, [Message(1, None, b"a", (("h", b"1"), ("h", None)), now_ms), Message(1, b"k", None, (), now_ms)])

    rows = read(spark, endpoint, topic_name, includeHeaders="true").orderBy("offset").collect()

    assert [(row.topic, row.partition, row.offset, row.key, row.value) for row in rows] == [
        (topic_name, 1, 0, None, b"a"),
        (topic_name, 1, 1, b"k", None),
    ]
    assert [(header.key, header.value) for header in rows[0].headers] == [("h", b"1"), ("h", None)]
    assert not rows[1].headers
    assert int(rows[0].timestamp.timestamp() * 1000) == now_ms


def test_batch_read_between_positions(spark: SparkSession, server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name, partitions=2)
    produce(server, topic_name, numbered(100, partitions=2))
    starting, ending = json.dumps({topic_name: {"0": 10, "1": -2}}), json.dumps({topic_name: {"0": -1, "1": 5}})

    rows = read(spark, plain(server), topic_name, startingOffsets=starting, endingOffsets=ending).collect()

    assert values(rows) == sorted([*range(20, 100, 2), *range(1, 11, 2)])


def test_batch_read_between_timestamps(spark: SparkSession, server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name)
    start_ms = int(time.time() * 1000) - 60_000
    produce(server, topic_name, [Message(0, None, b"%d" % i, (), start_ms + i * 100) for i in range(100)])

    rows = read(spark, plain(server), topic_name, startingTimestamp=str(start_ms + 1950), endingTimestamp=str(start_ms + 3000)).collect()

    assert values(rows) == list(range(20, 30))


def test_topic_pattern_reads_all_topics_that_match(spark: SparkSession, server: ServerProcess, topic_name: str) -> None:
    for number in range(3):
        create_topic(server, f"{topic_name}.{number}")
        produce(server, f"{topic_name}.{number}", [Message(0, None, b"%d" % number)])
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", server.bootstrap)

    rows = reader.option("subscribePattern", rf"{topic_name}\.[01]").load().collect()

    assert values(rows) == [0, 1]


def test_large_read_is_split_into_more_tasks_than_partitions(spark: SparkSession, server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name)
    produce(server, topic_name, numbered(20_000))

    records = read(spark, plain(server), topic_name, minPartitions="4")

    assert records.rdd.getNumPartitions() == 4
    assert records.selectExpr("count(distinct offset) n", "min(offset) a", "max(offset) z").first() == Row(n=20_000, a=0, z=19_999)


@pytest.mark.secured
def test_available_now_reads_what_is_there_in_bounded_batches(
    spark: SparkSession, endpoint: Endpoint, topic_name: str, tmp_path: Path
) -> None:
    create_topic(endpoint.server, topic_name, partitions=2)
    produce(endpoint.server, topic_name, numbered(1000, partitions=2))
    records = stream(spark, endpoint, ("subscribe", topic_name), maxOffsetsPerTrigger="400")

    writer = records.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))

    assert query.awaitTermination(QUERY_TIMEOUT_S)
    assert values(spark.read.parquet(str(tmp_path / "out")).collect()) == list(range(1000))
    assert len([report for report in query.recentProgress if report["numInputRows"]]) == 3


def test_progress_is_noted_in_a_group_and_measured_and_never_ends_the_query(
    spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(server, topic_name, partitions=2)
    produce(server, topic_name, numbered(50, partitions=2))
    registry = CollectorRegistry()
    rows = stream(spark, plain(server), ("subscribe", topic_name), maxOffsetsPerTrigger="20")
    writer = rows.writeStream.format("noop").queryName(topic_name).option("checkpointLocation", str(tmp_path))
    listeners = [
        commit_progress(spark, topic_name, kafka_options(plain(server)), registry=registry),
        commit_progress(spark, "lost", {"kafka.bootstrap.servers": "localhost:1"}),
    ]
    try:
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(int(QUERY_TIMEOUT_S))
        listeners.append(commit_progress(query, f"{topic_name}-late", kafka_options(plain(server))))
        eventually(lambda: "localhost:1" in caplog.text and committed(server, topic_name) == [25, 25])
    finally:
        for listener in listeners:
            spark.streams.removeListener(listener)
    produce(server, topic_name, numbered(7))

    assert committed(server, f"{topic_name}-late") == [25, 25]  # of a query that has ended
    labels = {"query": topic_name, "topic": topic_name, "partition": "0"}
    assert registry.get_sample_value("barnabas_spark_rows_total", {"query": topic_name}) == 50
    assert registry.get_sample_value("barnabas_spark_offset", labels) == 25
    assert registry.get_sample_value("barnabas_spark_lag", labels) == 7
    assert registry.get_sample_value("barnabas_spark_lag", {**labels, "partition": "1"}) == 0


def committed(server: ServerProcess, group: str) -> list[int]:
    """What the group has, by partition, as Kafka's tools see it."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(QUERY_TIMEOUT_S)
    return [each.offset for each in sorted(found.topic_partitions, key=lambda each: each.partition)]


def test_processing_time_goes_on_over_a_kill_of_the_broker(
    spark: SparkSession, own_server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    create_topic(own_server, topic_name, partitions=2)
    produce(own_server, topic_name, numbered(500, partitions=2))
    writer = stream(spark, plain(own_server), ("subscribePattern", topic_name)).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="200 milliseconds")
    query = writer.start(str(tmp_path / "out"))
    try:
        wait_until(lambda: sum(report["numInputRows"] for report in query.recentProgress) == 500, query)
        own_server.restart(hard=True)
        produce(own_server, topic_name, numbered(500, partitions=2, first=500))
        wait_until(lambda: sum(report["numInputRows"] for report in query.recentProgress) == 1000, query)
    finally:
        query.stop()

    assert values(spark.read.parquet(str(tmp_path / "out")).collect()) == list(range(1000))


DRIVER = """
import sys
from pathlib import Path
from pipeline.session import open_session
from tests.pipeline.spark_support import MASTER, SESSION_SETTINGS
from tests.support.process import cache_dir
bootstrap, topic, folder = sys.argv[1:]
spark = open_session("driver", master=MASTER, settings=SESSION_SETTINGS, cache_dir=cache_dir() / "barnabas")
source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "100")
writer = source.load().writeStream.format("parquet").option("checkpointLocation", folder + "/checkpoint")
query = writer.start(folder + "/out")
seen = -1
while True:
    query.awaitTermination(0.1)
    if (query.lastProgress or {"batchId": -1})["batchId"] > seen:
        seen = query.lastProgress["batchId"]
        print("batch", seen, flush=True)
"""


def test_restart_from_the_checkpoint_after_a_kill_of_the_driver(
    spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    create_topic(server, topic_name, partitions=2)
    produce(server, topic_name, numbered(5000, partitions=2))
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, server.bootstrap, topic_name, str(tmp_path)],
        cwd=CHECKOUT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        LineReader(driver).wait_for(2, containing="batch")
    finally:
        kill_group(driver)
    before = spark.read.parquet(str(tmp_path / "out")).count()

    writer = stream(spark, plain(server), ("subscribe", topic_name)).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    assert writer.start(str(tmp_path / "out")).awaitTermination(QUERY_TIMEOUT_S)

    assert 0 < before < 5000, "the kill came too late to show anything"
    assert values(spark.read.parquet(str(tmp_path / "out")).collect()) == list(range(5000))
