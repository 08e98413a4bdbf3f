"""`format("barnabas")` in Spark itself, without a connector on the class path: source and sink, and a query that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import barnabas
from barnabas.spark.client.cluster import Cluster
from barnabas.spark.client.fetching import EARLIEST, LATEST, Isolation, RangeReader, list_offsets
from barnabas.spark.client.transaction import list_open
from barnabas.spark.records.decode import decode_columns
from tests.pipeline.copy_topic import DONE
from tests.pipeline.spark_support import CHECKOUT, kill_group
from tests.support.installed import wait_until

pytestmark = pytest.mark.spark

PARTITIONS = 3
ROWS = 12_000
STEP_S = 180
MODULES = CHECKOUT / "barnabas" / "spark" / "modules"


@pytest.fixture(scope="module")
def broker() -> Iterator[barnabas.Broker]:
    with barnabas.Broker({"num.partitions": PARTITIONS}) as broker:
        yield broker


@pytest.fixture(scope="module")
def plain_spark() -> Iterator[SparkSession]:
    """A session that knows nothing of Kafka but what is installed in Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", f"{CHECKOUT}{os.pathsep}{MODULES}")
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        session = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.host", "127.0.0.1").getOrCreate()
        yield session
        session.stop()


def committed_values(cluster: Cluster, topic: str) -> Counter[bytes]:
    """The values that a reader of committed records sees, and how often."""
    partitions = list(range(PARTITIONS))
    starts = list_offsets(cluster, topic, partitions, EARLIEST)
    ends = list_offsets(cluster, topic, partitions, LATEST, Isolation.READ_COMMITTED)
    found: Counter[bytes] = Counter()
    for number in partitions:
        reader = RangeReader(cluster, topic, number, start=starts[number], end=ends[number], isolation=Isolation.READ_COMMITTED)
        for payloads in reader:
            found.update(decode_columns(payloads, start_offset=starts[number], end_offset=ends[number]).value.to_pylist())
    return found


def test_what_is_written_is_read(plain_spark: SparkSession, broker: barnabas.Broker) -> None:
    broker.create_topic("written", PARTITIONS)
    brokers = ("kafka.bootstrap.servers", broker.bootstrap_servers)
    header = "array(struct('h' as key, cast('x' as binary) as value)) as headers"
    rows = plain_spark.range(ROWS).selectExpr("cast(id as string) as key", "cast(id * 2 as string) as value", header)
    rows.write.format("barnabas").option(*brokers).option("topic", "written").mode("append").save()

    reader = plain_spark.read.format("barnabas").option(*brokers).option("subscribe", "written")
    found = (
        reader.option("includeHeaders", "true")
        .load()
        .selectExpr(
            "cast(key as string) as key",
            "cast(value as string) as value",
            "topic",
            "partition",
            "headers[0].key as header",
            "timestampType",
        )
    )

    assert sorted((int(row.key), int(row.value)) for row in found.collect()) == [(number, number * 2) for number in range(ROWS)]
    assert {(row.topic, row.partition, row.header, row.timestampType) for row in found.collect()} == {
        ("written", number, "h", 0) for number in range(PARTITIONS)
    }


def test_a_bad_option_is_one_sentence(plain_spark: SparkSession, broker: barnabas.Broker) -> None:
    reader = plain_spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap_servers).option("subscribe", "missing")

    with pytest.raises(Exception, match="topic missing does not exist"):
        reader.load().collect()


def test_a_query_that_is_killed_copies_each_row_once(broker: barnabas.Broker, tmp_path: Path) -> None:
    """kill -9 of the driver, its JVM and its Python workers, in the middle of a batch; then it goes on from its checkpoint."""
    for topic in ("source", "copy"):
        broker.create_topic(topic, PARTITIONS)
    fill(broker, "source")
    cluster = Cluster(broker.bootstrap_servers)
    arguments = [broker.bootstrap_servers, "source", "copy", str(tmp_path / "checkpoint"), "3000"]

    driver = start(arguments)
    try:
        wait_until(lambda: end_of(cluster, "copy") > ROWS // 3, STEP_S, lambda: f"no progress: {output_of(driver)}")
    finally:
        kill_group(driver)
    assert sum(committed_values(cluster, "copy").values()) < ROWS
    driver = start(arguments)
    try:
        told, _ = driver.communicate(timeout=STEP_S)
    finally:
        kill_group(driver)

    assert DONE in told, told[-3000:]
    assert committed_values(cluster, "copy") == Counter({b"value-%d" % number: 1 for number in range(ROWS)})
    assert list_open(cluster, "copy.") == []


def fill(broker: barnabas.Broker, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    for number in range(ROWS):
        producer.produce(topic, key=str(number), value=b"value-%d" % number)
        producer.poll(0)
    assert producer.flush(60) == 0


def start(arguments: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{MODULES}"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.copy_topic", *arguments],
        cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def output_of(driver: subprocess.Popen[str]) -> str:
    kill_group(driver)
    assert driver.stdout is not None
    return driver.stdout.read()[-3000:]


def end_of(cluster: Cluster, topic: str) -> int:
    """All offsets that are taken, committed or not."""
    time.sleep(0.02)
    return sum(list_offsets(cluster, topic, list(range(PARTITIONS)), LATEST).values())
