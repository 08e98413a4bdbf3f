"""Pure DataFrame functions: they read nothing, write nothing, and use no session and no clock. No Python code runs on an executor."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

DAY_MS = 86_400_000
ARCHIVE_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
LAYOUT_COLUMNS = ("topic", "day")


def with_day(records: DataFrame) -> DataFrame:
    """Adds `day`, the UTC day of the record's timestamp, for any time zone of the session."""
    return records.withColumn("day", F.date_from_unix_date(F.floor(F.unix_millis("timestamp") / DAY_MS).cast("int")))


def archive_rows(records: DataFrame) -> DataFrame:
    """The archive's rows from those of the Kafka source: the archived columns, and the two that name the folders."""
    return with_day(records).select(*LAYOUT_COLUMNS, *ARCHIVE_COLUMNS)


def in_archive_order(rows: DataFrame, *, tasks_limit: int) -> DataFrame:
    """At most `tasks_limit` tasks. The rows of each are sorted by topic, day, partition and offset, and so is each file that it writes.

    Tasks are merged and not shuffled: the source reads a partition's range in one task, and its records stay in it.
    """
    return rows.coalesce(tasks_limit).sortWithinPartitions(*LAYOUT_COLUMNS, "partition", "offset")


def of_topic(rows: DataFrame, topic: str) -> DataFrame:
    return rows.where(F.col("topic") == topic)


def sink_rows(rows: DataFrame, *, topic: str) -> DataFrame:
    """Rows for the Kafka sink from archived ones: with their old partitions, each partition in one task, sorted by offset."""
    ordered = rows.repartition("partition").sortWithinPartitions("partition", "offset")
    return ordered.select(F.lit(topic).alias("topic"), "partition", "key", "value", "headers")
