"""What becomes of rows, without Kafka."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.transforms import in_archive_order, of_topic, sink_rows, with_day

pytestmark = [pytest.mark.spark]


def rows(spark: SparkSession, values: list[tuple[str, int, int]]) -> DataFrame:
    return spark.createDataFrame(
        [(topic, partition, offset, date(2026, 3, 1), b"", b"") for topic, partition, offset in values],
        "topic string, partition int, offset long, day date, key binary, value binary",
    )


@pytest.mark.parametrize("time_zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_day_is_the_utc_day_in_every_session_time_zone(spark: SparkSession, time_zone: str) -> None:
    moments = [
        (datetime(2026, 3, 1, 23, 59, 59, 999_000, tzinfo=UTC),),
        (datetime(2026, 3, 2, tzinfo=UTC),),
        (datetime(1969, 12, 31, 23, tzinfo=UTC),),
    ]
    spark.conf.set("spark.sql.session.timeZone", time_zone)
    try:
        days = [row.day for row in with_day(spark.createDataFrame(moments, "timestamp timestamp")).collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert days == [date(2026, 3, 1), date(2026, 3, 2), date(1969, 12, 31)]


def test_archive_order_merges_tasks_and_sorts_each(spark: SparkSession) -> None:
    shuffled = rows(spark, [("b", 1, 0), ("a", 1, 5), ("a", 0, 7), ("a", 0, 3), ("b", 0, 1), ("a", 1, 4)]).repartition(6)

    ordered = in_archive_order(shuffled, tasks_limit=1)

    found = [(row.topic, row.partition, row.offset) for row in ordered.collect()]
    assert found == [("a", 0, 3), ("a", 0, 7), ("a", 1, 4), ("a", 1, 5), ("b", 0, 1), ("b", 1, 0)]


def test_sink_rows_keep_each_partition_in_one_task_by_offset(spark: SparkSession) -> None:
    archived = rows(spark, [("a", n % 3, n) for n in range(99, -1, -1)]).selectExpr("*", "array() headers")

    tasks = sink_rows(of_topic(archived, "a"), topic="t").selectExpr("spark_partition_id() task", "*").collect()

    assert {row.topic for row in tasks} == {"t"}
    assert len({(row.task, row.partition) for row in tasks}) == 3
    assert len(tasks) == 100
