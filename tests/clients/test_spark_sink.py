"""Spark's stock Kafka sink against the broker, in batch and streaming."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.clients.topics import create_topic
from tests.pipeline.spark_support import kafka_options, needs_java, spark
from tests.support.process import ServerProcess
from tests.support.secured_cluster import Endpoint

__all__ = ["spark"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), needs_java()]

QUERY_TIMEOUT_S = 180.0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batch_write_keeps_key_value_headers_and_partition(spark: SparkSession, server: ServerProcess, topic_name: str, codec: str) -> None:
    create_topic(server, topic_name, partitions=3)
    rows = spark.range(300).selectExpr(
        "cast(id % 3 as int) partition",
        "if(id % 5 = 0, null, cast(id as string)) key",
        "cast(id as string) value",
        "array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) headers",
    )

    writer = rows.write.format("kafka").option("topic", topic_name).option("includeHeaders", "true")
    writer.option("kafka.bootstrap.servers", server.bootstrap).option("kafka.compression.type", codec).save()

    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", server.bootstrap).option("includeHeaders", "true")
    found = reader.option("subscribe", topic_name).load().collect()
    assert sorted(int(row.value) for row in found) == list(range(300))
    assert all(row.partition == int(row.value) % 3 for row in found)
    assert all(row.key == (None if int(row.value) % 5 == 0 else row.value) for row in found)
    assert all([header.value for header in row.headers] == [row.value] for row in found)


@pytest.mark.secured
def test_streaming_write_copies_one_topic_into_another(spark: SparkSession, endpoint: Endpoint, topic_name: str, tmp_path: Path) -> None:
    source, target = f"{topic_name}-from", f"{topic_name}-to"
    for topic in (source, target):
        create_topic(endpoint.server, topic, partitions=2)
    kafka = kafka_options(endpoint)
    spark.range(1000).selectExpr("cast(id as string) value").write.format("kafka").options(topic=source, **kafka).save()

    records = spark.readStream.format("kafka").options(subscribe=source, startingOffsets="earliest", **kafka).load()
    writer = records.select("key", "value").writeStream.format("kafka").options(topic=target, **kafka)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()

    assert query.awaitTermination(QUERY_TIMEOUT_S)
    copied = spark.read.format("kafka").options(subscribe=target, **kafka).load().collect()
    assert sorted(int(row.value) for row in copied) == list(range(1000))
