"""Writes an archive back into a topic: `barnabas pipeline replay`.

Key, value, headers, partition and the order within each partition are kept; timestamps are new. Replay is at least once: a repeated run, or
a repeated Spark task, writes its records again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from barnabas.spark.archives.hadoop_files import HadoopFiles
from barnabas.spark.archives.reading import refuse_delta_table
from pipeline.admin import TopicAdmin
from pipeline.errors import PipelineError
from pipeline.options import joined_servers
from pipeline.session import one_sentence
from pipeline.transforms import of_topic, sink_rows

# The order of a partition survives a resend only with an idempotent producer, which needs these.
ORDER_PROPERTIES: Mapping[str, str] = {"enable.idempotence": "true", "acks": "all"}


class ReplayError(PipelineError):
    """The archive cannot be written to that topic; the message says why."""


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """The archive, and the topic to write to."""

    source: str
    source_topic: str
    topic: str
    bootstrap_servers: str
    producer_properties: Mapping[str, str] = field(default_factory=dict)


def replay(spark: SparkSession, job: ReplayJob, *, say: Callable[[str], None], complain: Callable[[str], None] = lambda line: None) -> None:
    """Writes the archived topic's records to the job's topic. Raises ReplayError, ArchiveError or AdminError before anything is written.
    When it fails later, `complain` is told what that means."""
    refuse_delta_table(HadoopFiles(spark, job.source), job.source.rstrip("/"), "replay")
    rows = read_archive(spark, job)
    count, last_partition = rows.agg(F.count("*"), F.max("partition")).collect()[0]
    if not count:
        raise ReplayError(f"{job.source} holds no records of topic {job.source_topic}")
    with TopicAdmin(spark, job.bootstrap_servers, job.producer_properties) as admin:
        partitions = admin.partition_count(job.topic)
        # Each of Spark's tasks connects by itself, when a bootstrap server may be down.
        servers = joined_servers(job.bootstrap_servers, admin.brokers())
    if last_partition >= partitions:
        raise ReplayError(f"topic {job.topic} has {partitions} partitions, and the archive's records need {last_partition + 1}")
    say(f"{count:,} records of {job.source_topic} to {job.topic} ({partitions} partitions)")
    writer = sink_rows(rows, topic=job.topic).write.format("kafka").option("includeHeaders", "true")
    properties = {**job.producer_properties, **ORDER_PROPERTIES, "bootstrap.servers": servers}
    try:
        writer.options(**{f"kafka.{name}": value for name, value in properties.items()}).save()
    except BaseException:
        complain("records may have been written; the same command writes all of them again (without --at-least-once it would go on)")
        raise
    say(f"done: {count:,} records")


def read_archive(spark: SparkSession, job: ReplayJob) -> DataFrame:
    """The archived rows of the source topic."""
    try:
        rows = spark.read.parquet(job.source)
        return of_topic(rows, job.source_topic)
    except AnalysisException as e:
        raise ReplayError(f"{job.source} is no archive: {one_sentence(str(e))}") from e
