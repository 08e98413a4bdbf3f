"""Archives topics as Parquet with Structured Streaming: `barnabas pipeline archive`.

Reading and running are here; what a row becomes is in transforms.py, how a batch becomes visible in publication.py.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pipeline.admin import TopicAdmin
from pipeline.hadoop_files import HadoopFiles
from pipeline.progress import ProgressPrinter
from pipeline.publication import CHECKPOINT, Publisher
from pipeline.transforms import LAYOUT_COLUMNS, archive_rows, in_archive_order

POLL_INTERVAL_S = 0.2


class QueryStoppedError(Exception):
    """Ends the query instead of the batch that it would have run."""


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """What to archive and where to. `subscription` is one of Spark's options subscribe and subscribePattern with its value."""

    bootstrap_servers: str
    subscription: tuple[str, str]
    target: str
    checkpoint: str | None = None
    start: str = "earliest"
    start_timestamp_ms: int | None = None
    interval_s: float | None = None
    """Seconds between batches; None archives what is there now and ends."""
    records_per_batch_limit: int = 1_000_000
    files_per_batch_limit: int | None = None
    """Files that a batch may write per topic and day; None for one per core of the cluster."""
    allow_data_loss: bool = False
    consumer_properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        """The topics that must be there; a pattern may match none yet."""
        option, value = self.subscription
        return [topic.strip() for topic in value.split(",")] if option == "subscribe" else []

    @property
    def checkpoint_folder(self) -> str:
        return self.checkpoint or f"{self.target.rstrip('/')}/{CHECKPOINT}"


class Stop:
    """Set by SIGTERM or SIGINT; the batch that runs is finished first. A second signal ends the process at once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    @property
    def is_requested(self) -> bool:
        return self._event.is_set()

    def request(self) -> None:
        self._event.set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.request()


def archive(spark: SparkSession, job: ArchiveJob, *, stop: Stop, say: Callable[[str], None]) -> None:
    """Runs the job until it is done or `stop` is requested. Raises what a batch failed with, or StreamingQueryException."""
    with TopicAdmin(spark, job.bootstrap_servers, job.consumer_properties) as admin:
        for topic in job.topics:
            admin.require_topic(topic)
    checkpoint = job.checkpoint_folder
    publisher = Publisher(HadoopFiles(spark, job.target), job.target, HadoopFiles(spark, checkpoint), checkpoint)
    publisher.open()
    tasks_limit = job.files_per_batch_limit or spark.sparkContext.defaultParallelism
    failures: list[Exception] = []

    def run_batch(batch: DataFrame, batch_id: int) -> None:
        try:
            if stop.is_requested:
                # Refusing the batch is the one way to end between two: it is planned, and the next start runs it.
                raise QueryStoppedError
            rows = in_archive_order(batch, tasks_limit=tasks_limit)
            publisher.publish(batch_id, lambda folder: rows.write.partitionBy(*LAYOUT_COLUMNS).parquet(folder))
        except Exception as e:
            # Spark passes on no more of it than a traceback's text.
            failures.append(e)
            raise

    writer = archive_rows(read_topics(spark, job)).writeStream.foreachBatch(run_batch)
    writer = writer.option("checkpointLocation", checkpoint).queryName("barnabas-archive")
    trigger = writer.trigger(availableNow=True) if job.interval_s is None else writer.trigger(processingTime=f"{job.interval_s} seconds")
    _run(trigger.start(), failures, stop=stop, progress=ProgressPrinter(say))


def read_topics(spark: SparkSession, job: ArchiveJob) -> DataFrame:
    """Spark's own Kafka source over the job's topics. Aborted transactions are not archived."""
    reader = (
        spark.readStream.format("kafka")
        .option(*job.subscription)
        .options(
            **{
                "kafka.bootstrap.servers": job.bootstrap_servers,
                "kafka.isolation.level": "read_committed",
                "includeHeaders": "true",
                "startingOffsets": job.start,
                "maxOffsetsPerTrigger": str(job.records_per_batch_limit),
                "failOnDataLoss": str(not job.allow_data_loss).lower(),
                **{f"kafka.{name}": value for name, value in job.consumer_properties.items()},
            }
        )
    )
    if job.start_timestamp_ms is not None:
        # A partition with nothing that young starts at its end instead of failing the job.
        reader = reader.option("startingTimestamp", str(job.start_timestamp_ms)).option("startingOffsetsByTimestampStrategy", "latest")
    return reader.load()


def _run(query: StreamingQuery, failures: list[Exception], *, stop: Stop, progress: ProgressPrinter) -> None:
    """Waits for the query's end, printing its batches; ends it between two batches when asked to.

    Raises what ended the query: a batch's own exception, which is added to `failures`, or StreamingQueryException.
    """
    try:
        while query.isActive:
            progress.print_new(query.recentProgress)
            if stop.is_requested and not query.status["isTriggerActive"]:
                query.stop()
            time.sleep(POLL_INTERVAL_S)
        query.awaitTermination()
    except StreamingQueryException as e:
        if not failures:
            raise
        if not isinstance(failures[-1], QueryStoppedError):
            raise failures[-1] from e
    progress.print_new(query.recentProgress)
    progress.print_total(stopped=stop.is_requested)
