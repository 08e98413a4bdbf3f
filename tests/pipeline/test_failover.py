"""Spark's kafka source and the archive job on a cluster of three: each goes on through kill -9 of leaders, and has every record once."""

from __future__ import annotations

import itertools
import json
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from pipeline.archive import ArchiveJob, Stop, archive
from pipeline.brokers import MISSES_UNTIL_AWAY, WATCH_INTERVAL_S
from tests.pipeline.spark_support import positions, read_archive
from tests.support.cluster import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 6
KILLS = 2
RECORDS_PER_INTERVAL, INTERVAL_S = 50, 0.05
FLUSH_TIMEOUT_S = 60.0
WAIT_MAX_S = 200.0
PROBES_WAITED_FOR = MISSES_UNTIL_AWAY + 2


class Load:
    """Numbers from 0 on, acknowledged by all replicas in sync, from a thread of its own until it is closed."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.errors: list[object] = []
        self.count = 0
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Returns once every record is acknowledged. May be called again."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(FLUSH_TIMEOUT_S) == 0
        assert not self.errors, self.errors[:3]

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            for number in range(self.count, self.count + RECORDS_PER_INTERVAL):
                self._producer.produce(self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered)
            self.count += RECORDS_PER_INTERVAL
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.errors.append(error)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("brokers")) as cluster:
        yield cluster


def kill_a_leader(brokers: Cluster, topic: str) -> None:
    """Of the first partition; those that were killed before come back."""
    brokers.start(*(node_id for node_id in brokers.nodes if node_id not in brokers.running))
    brokers.wait_in_sync(topic)
    brokers.kill(brokers.partition(topic).leader_id)


@pytest.fixture(autouse=True)
def _whole_again(brokers: Cluster) -> Iterator[None]:
    yield
    brokers.start()


def committed_count(checkpoint: Path, topic: str) -> int:
    """How many records the query's finished batches have read: its progress reports are costly to ask for, and may be half made."""
    finished = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    if not finished:
        return 0
    offsets = (checkpoint / "offsets" / str(max(finished))).read_text().splitlines()[-1]
    return sum(json.loads(offsets)[topic].values())


def test_a_streaming_query_reads_all_once_through_kills_of_leaders(
    spark: SparkSession, brokers: Cluster, topic_name: str, tmp_path: Path
) -> None:
    brokers.create_topic(topic_name, PARTITIONS)
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers.bootstrap).option("subscribe", topic_name)
    writer = source.option("startingOffsets", "earliest").load().writeStream.format("parquet")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))

    def read_count() -> int:
        assert query.isActive, query.exception()
        return committed_count(tmp_path / "checkpoint", topic_name)

    try:
        with Load(brokers, topic_name) as load:
            for _ in range(KILLS):
                before = load.count
                brokers.wait_for(lambda: read_count() > before, "the query reads what is new", timeout_s=WAIT_MAX_S)  # noqa: B023
                kill_a_leader(brokers, topic_name)
            killed_at = load.count
            brokers.wait_for(lambda: read_count() > killed_at, "the query reads on", timeout_s=WAIT_MAX_S)
        brokers.wait_for(lambda: read_count() >= load.count, "the query has read all", timeout_s=WAIT_MAX_S)
    finally:
        query.stop()

    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(int(row.value) for row in rows) == list(range(load.count))


def test_the_archive_has_all_once_through_kills_of_leaders(spark: SparkSession, brokers: Cluster, topic_name: str, tmp_path: Path) -> None:
    brokers.create_topic(topic_name, PARTITIONS)
    job = ArchiveJob(brokers.bootstrap, ("subscribe", topic_name), str(tmp_path), interval_s=0.1)
    stop, said, complaints = Stop(), list[str](), list[str]()
    batches = itertools.count(1)
    deadline_s = time.monotonic() + WAIT_MAX_S

    with Load(brokers, topic_name) as load:

        def say(line: str) -> None:
            said.append(line)
            if not line.startswith("batch"):
                return
            batch = next(batches)
            if batch <= KILLS:
                kill_a_leader(brokers, topic_name)
            elif batch == KILLS + 2:
                load.close()
            elif (batch > KILLS + 2 and len(positions(read_archive(tmp_path))) >= load.count) or time.monotonic() > deadline_s:
                stop.request()

        archive(spark, job, stop=stop, say=say, complain=complaints.append)

    expected = sorted((topic_name, number % PARTITIONS, number // PARTITIONS) for number in range(load.count))
    assert positions(read_archive(tmp_path)) == expected
    assert sorted(int(value) for value in read_archive(tmp_path)["value"].to_pylist()) == list(range(load.count))
    assert not [line for line in complaints if "the query ended" in line], complaints


def test_the_one_bootstrap_server_dies_before_the_first_batch_and_the_others_are_archived_from(
    spark: SparkSession, brokers: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Nothing is said of it either: brokers answer."""
    brokers.create_topic(topic_name, PARTITIONS)
    named = brokers.nodes[1]
    job = ArchiveJob(named.bootstrap, ("subscribe", topic_name), str(tmp_path), interval_s=0.1)
    stop, complaints = Stop(), list[str]()
    killed_s = math.inf

    with Load(brokers, topic_name) as load:

        def say(line: str) -> None:
            nonlocal killed_s
            if line.startswith("archiving"):
                brokers.kill(1)
                killed_s = time.monotonic()
            elif time.monotonic() - killed_s > PROBES_WAITED_FOR * WATCH_INTERVAL_S:
                load.close()
                stop.request()

        archive(spark, job, stop=stop, say=say, complain=complaints.append)

    archive(spark, replace(job, bootstrap_servers=brokers.bootstrap, interval_s=None), stop=Stop(), say=print)
    assert complaints == []
    assert sorted(int(value) for value in read_archive(tmp_path)["value"].to_pylist()) == list(range(load.count))
