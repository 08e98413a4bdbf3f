"""What a query on `format("barnabas")` ends with in Spark itself: one sentence that names the cause, and nothing is written."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import barnabas.spark
from barnabas.spark.client.cluster import Cluster
from barnabas.spark.client.transaction import list_open
from barnabas.spark.data_source import DefaultSource
from pipeline.session import open_session
from tests.clients.topics import create_topic, eventually
from tests.pipeline.spark_support import MASTER, SESSION_SETTINGS, produce
from tests.support.messages import Message
from tests.support.process import ServerProcess, cache_dir

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PARTITIONS = 2
SENTENCE = re.compile(r"barnabas\.spark\.[\w.]*Error: ([^\n]*)")
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    barnabas.spark.prepare()
    settings = {**SESSION_SETTINGS, "spark.pyspark.python": sys.executable}
    session = open_session("refusals", master=MASTER, settings=settings, cache_dir=cache_dir() / "barnabas")
    try:
        session.dataSource.register(DefaultSource)
    except AnalysisException as e:
        if e.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise  # else a session before this one, in the same JVM, has found the installed module
    yield session
    session.stop()


def sentence_of(error: object) -> str:
    found = SENTENCE.findall(str(error))
    assert found, str(error)[-2000:]
    return str(found[-1])


def refusal(rows: DataFrame, server: ServerProcess, **options: str) -> str:
    """What a write of the rows ends with."""
    with pytest.raises(Exception) as raised:
        rows.write.format("barnabas").option("kafka.bootstrap.servers", server.bootstrap).options(**options).mode("append").save()
    return sentence_of(raised.value)


def test_rows_that_cannot_be_written_are_named(spark: SparkSession, server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)
    good = f"SELECT 'good' AS value, '{topic_name}' AS topic, 0 AS partition UNION ALL "
    cases = {
        good + "SELECT 'x', CAST(NULL AS STRING), 0": "a row has no topic: its column 'topic' is null, and the option 'topic' is not set",
        good + "SELECT 'x', 'unknown', 0": "topic unknown does not exist",
        good + f"SELECT 'x', '{topic_name}', 2": f"topic {topic_name} has 2 partitions: there is no partition 2",
        good + f"SELECT 'x', '{topic_name}', -1": "a row has a negative partition",
        good + f"SELECT repeat('x', 2000000), '{topic_name}', 1": "a record is larger than the topic's max.message.bytes",
        f"SELECT 1 AS value, '{topic_name}' AS topic": "the column 'value' is int: it has to be string or binary",
        "SELECT 'x' AS value": "no topic: set the option 'topic', or give the data a column 'topic'",
    }

    for statement, why in cases.items():
        assert why in refusal(spark.sql(statement), server)
    too_long = refusal(spark.sql("SELECT 'x' AS value"), server, topic=topic_name, **{"kafka.transaction.timeout.ms": "900001"})
    assert too_long == "transaction.timeout.ms 900001 is above the broker's transaction.max.timeout.ms"
    cluster = Cluster(server.bootstrap)
    eventually(lambda: list_open(cluster, "write-") == [])
    assert (
        spark.read.format("barnabas").option("kafka.bootstrap.servers", server.bootstrap).option("subscribe", topic_name).load().count()
        == 0
    )


COPIED = ["0", "1", "2", "3"]


class Copy:
    """A query that copies a topic, started again and again."""

    def __init__(self, spark: SparkSession, server: ServerProcess, source: str, target: str, folder: Path) -> None:
        self._spark = spark
        self._server = server
        self._source = source
        self._target = target
        self.checkpoint = folder / "checkpoint"

    def start(self, *, checkpoint: Path | None = None, **options: Any) -> StreamingQuery:
        brokers = ("kafka.bootstrap.servers", self._server.bootstrap)
        reader = self._spark.readStream.format("barnabas").option(*brokers).option("subscribe", self._source)
        rows = reader.option("startingOffsets", "earliest").load().select("key", "value")
        writer = rows.writeStream.format("barnabas").option(*brokers).option("topic", self._target).option("id", self._target)
        return writer.options(**options).option("checkpointLocation", str(checkpoint or self.checkpoint)).start()

    def run(self) -> None:
        query = self.start()
        query.processAllAvailable()
        query.stop()

    def refusal(self, **options: Any) -> str:
        query = self.start(**options)
        try:
            with pytest.raises(Exception) as raised:
                query.processAllAvailable()
        finally:
            query.stop()
        return sentence_of(raised.value)

    def rows(self) -> list[str]:
        """What readers of committed records see of the copy."""
        reader = self._spark.read.format("barnabas").option("kafka.bootstrap.servers", self._server.bootstrap)
        found = reader.option("subscribe", self._target).load().selectExpr("cast(value as string) as value").collect()
        return sorted(row.value for row in found)


@pytest.fixture
def copy(spark: SparkSession, server: ServerProcess, topic_name: str, tmp_path: Path) -> Copy:
    """It has copied four rows."""
    for topic in (f"{topic_name}-from", f"{topic_name}-to"):
        create_topic(server, topic, partitions=PARTITIONS)
    produce(server, f"{topic_name}-from", [Message(number % PARTITIONS, b"k", value.encode()) for number, value in enumerate(COPIED)])
    found = Copy(spark, server, f"{topic_name}-from", f"{topic_name}-to", tmp_path)
    found.run()
    return found


def test_another_query_is_refused_and_a_ledger_that_is_not_compacted(
    copy: Copy, server: ServerProcess, topic_name: str, tmp_path: Path
) -> None:
    """A query whose checkpoint was deleted is another one."""
    assert re.fullmatch(
        rf"the sink {topic_name}-to belongs to the query [\w-]+, not to [\w-]+: give this query an id of its own "
        r"\(a query whose checkpoint was deleted is another query\)",
        copy.refusal(checkpoint=tmp_path / "another"),
    )
    produce(server, f"{topic_name}-from", [Message(0, b"k", b"later")])
    ledger = copy.refusal(ledger=f"{topic_name}-from")
    assert ledger.endswith("has cleanup.policy=delete: it has to be compact, or decisions are lost")
    shutil.rmtree(copy.checkpoint)
    assert "a query whose checkpoint was deleted is another query" in copy.refusal()
    assert copy.rows() == COPIED


def test_a_source_that_has_lost_records_or_was_made_anew_ends_the_query(copy: Copy, server: ServerProcess, topic_name: str) -> None:
    source = f"{topic_name}-from"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    produce(server, source, [Message(0, b"k", b"deleted before it is read"), Message(0, b"k", b"later")])
    for future in admin.delete_records([TopicPartition(source, 0, 3)]).values():
        future.result(TIMEOUT_S)

    expired = copy.refusal()
    admin.delete_topics([source])[source].result(TIMEOUT_S)
    cluster = Cluster(server.bootstrap)

    def is_gone() -> bool:
        cluster.refresh((source,))
        return cluster.topic(source) is None

    eventually(is_gone)
    create_topic(server, source, partitions=PARTITIONS)
    produce(server, source, [Message(number % PARTITIONS, b"k", b"of another topic") for number in range(20)])

    assert expired.endswith("records that this query has yet to read were deleted, by retention or by hand")
    assert copy.refusal().startswith(f"topic {source} was deleted and made again: its offsets are of other records now")
    assert copy.rows() == COPIED
