"""`barnabas pipeline replay --at-least-once` as a user runs it: what a consumer of the target topic sees."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from pipeline.admin import AdminError
from pipeline.archive import ArchiveJob, Stop
from pipeline.archive import archive as archive_topics
from pipeline.cli import parser
from pipeline.replay import ReplayError, ReplayJob, replay
from tests.clients.topics import create_topic
from tests.pipeline.spark_support import needs_java, produce
from tests.support.messages import Message
from tests.support.process import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), needs_java()]

POLL_TIMEOUT_S = 60.0


def consume(server: ServerProcess, topic: str, partition: int) -> list[Message]:
    """The whole partition, timestamps included."""
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "replayed", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=POLL_TIMEOUT_S)[1]
        records = consumer.consume(end, timeout=POLL_TIMEOUT_S) if end else []
    finally:
        consumer.close()
    return [Message(partition, r.key(), r.value(), tuple(r.headers() or ()), r.timestamp()[1]) for r in records]


def without_time(messages: list[Message]) -> list[Message]:
    return [Message(m.partition, m.key, m.value, m.headers) for m in messages]


def test_replay_keeps_everything_but_timestamps(spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path) -> None:
    target = f"{topic_name}-again"
    create_topic(server, topic_name, partitions=3)
    create_topic(server, target, partitions=4)
    then_ms = int(time.time() * 1000) - 3_600_000
    messages = [
        Message(
            partition=i % 3,
            key=None if i % 7 == 0 else b"k%d" % i,
            value=None if i % 11 == 0 else b"v%d" % i,
            headers=(("n", b"%d" % i), ("n", None)) * (i % 2),
            timestamp_ms=then_ms,
        )
        for i in range(5000)
    ]
    produce(server, topic_name, messages)
    job = ArchiveJob(server.bootstrap, ("subscribe", topic_name), str(tmp_path), records_per_batch_limit=2000)
    archive_topics(spark, job, stop=Stop(), say=print)

    words = ("--from", str(tmp_path), "--source-topic", topic_name, "--topic", target, "--at-least-once")
    arguments = parser().parse_args(["replay", "--bootstrap-servers", server.bootstrap, *words])
    arguments.spark = spark  # as of `pipeline run`, instead of a second JVM

    assert arguments.run(arguments) == 0
    for partition in range(4):
        replayed = consume(server, target, partition)
        assert without_time(replayed) == without_time([message for message in messages if message.partition == partition])
        assert all((message.timestamp_ms or 0) > then_ms for message in replayed)


@pytest.fixture
def archive(spark: SparkSession, topic_name: str, tmp_path: Path) -> str:
    """One record of partition 1."""
    headers = "cast(null as array<struct<key: string, value: binary>>) headers"
    row = f"cast(null as binary) key, binary('x') value, 1 partition, 0L offset, {headers}, '{topic_name}' topic, '2026-03-01' day"
    spark.sql(f"select {row}").write.partitionBy("topic", "day").parquet(f"{tmp_path}/archive")
    return f"{tmp_path}/archive"


def refusal(spark: SparkSession, server: ServerProcess, archive: str, source_topic: str, topic: str) -> str:
    said: list[str] = []
    with pytest.raises((ReplayError, AdminError)) as refused:
        replay(spark, ReplayJob(archive, source_topic, topic, server.bootstrap), say=said.append)
    assert not said, "it began to write"
    return str(refused.value)


def test_topic_with_too_few_partitions_is_refused(spark: SparkSession, server: ServerProcess, topic_name: str, archive: str) -> None:
    create_topic(server, f"{topic_name}-narrow")

    message = refusal(spark, server, archive, topic_name, f"{topic_name}-narrow")

    assert message == f"topic {topic_name}-narrow has 1 partitions, and the archive's records need 2"
    assert consume(server, f"{topic_name}-narrow", 0) == []


def test_topic_that_does_not_exist_is_refused(spark: SparkSession, server: ServerProcess, topic_name: str, archive: str) -> None:
    message = refusal(spark, server, archive, topic_name, f"{topic_name}-missing")

    assert message == f"topic {topic_name}-missing does not exist at {server.bootstrap}"


def test_topic_that_is_not_archived_is_refused(spark: SparkSession, server: ServerProcess, archive: str) -> None:
    assert refusal(spark, server, archive, "other", "other") == f"{archive} holds no records of topic other"


def test_folder_that_is_no_archive_is_refused(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    assert refusal(spark, server, f"{tmp_path}/nothing", "a", "a").startswith(f"{tmp_path}/nothing is no archive: ")
