"""Pure DataFrame functions: no reading, no writing, no session, no clock; nothing here runs Python on an executor."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

DAY_MS = 86_400_000
ARCHIVE_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
LAYOUT_COLUMNS = ("topic", "day")


def with_day(records: DataFrame) -> DataFrame:
    """Adds `day`, the UTC day of the record's timestamp, whatever the session's time zone is."""
    return records.withColumn("day", F.date_from_unix_date(F.floor(F.unix_millis("timestamp") / DAY_MS).cast("int")))


def archive_rows(records: DataFrame) -> DataFrame:
    """The rows of the Kafka source as they are archived: the columns that last, and the two that name the folders."""
    return with_day(records).select(*LAYOUT_COLUMNS, *ARCHIVE_COLUMNS)


def in_archive_order(rows: DataFrame, *, tasks_limit: int) -> DataFrame:
    """At most `tasks_limit` tasks, the rows of each by topic, day, partition and offset: so each file that one writes is sorted.

    Tasks are merged, not shuffled: the source reads a partition's range in one task, and its records never leave it.
    """
    return rows.coalesce(tasks_limit).sortWithinPartitions(*LAYOUT_COLUMNS, "partition", "offset")


def of_topic(rows: DataFrame, topic: str) -> DataFrame:
    return rows.where(F.col("topic") == topic)


def sink_rows(rows: DataFrame, *, topic: str) -> DataFrame:
    """Archived rows as the Kafka sink takes them: to their old partitions, those of one partition in one task, by offset."""
    ordered = rows.repartition("partition").sortWithinPartitions("partition", "offset")
    return ordered.select(F.lit(topic).alias("topic"), "partition", "key", "value", "headers")
