"""Archives topics as Parquet with Structured Streaming: `barnabas pipeline archive`.

It reads the topics and runs the query. transforms.py has the format of a row, publication.py how a batch becomes visible.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from barnabas.spark.archives.checkpoint import Checkpoint
from barnabas.spark.archives.hadoop_files import HadoopFiles
from barnabas.spark.archives.layout import CHECKPOINT, DEAD_LETTERS
from pipeline.admin import AdminError, TopicAdmin
from pipeline.brokers import BrokerError, BrokerWatch
from pipeline.decoding import Counts, Decoding
from pipeline.delta import DeltaPublisher
from pipeline.options import topic_names
from pipeline.ownership import Ownership
from pipeline.progress import GroupProgress, ProgressPrinter
from pipeline.publication import Publisher
from pipeline.subscription import Subscription
from pipeline.transforms import LAYOUT_COLUMNS, archive_rows, in_archive_order

POLL_INTERVAL_S = 0.2


class QueryStoppedError(Exception):
    """Ends the query before its next batch runs."""


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """The topics and the archive's folder. `subscription` is one of Spark's options subscribe and subscribePattern with its value."""

    bootstrap_servers: str
    subscription: tuple[str, str]
    target: str
    checkpoint: str | None = None
    start: str = "earliest"
    start_timestamp_ms: int | None = None
    interval_s: float | None = None
    """Seconds between batches. None archives the records that exist now and ends."""
    records_per_batch_limit: int = 1_000_000
    files_per_batch_limit: int | None = None
    """Files that a batch may write per topic and day; None for one per core of the cluster."""
    allow_data_loss: bool = False
    group: str | None = None
    """In which the progress is noted, besides the checkpoint, for those who watch lag."""
    consumer_properties: Mapping[str, str] = field(default_factory=dict)
    is_delta_table: bool = False
    """The archive is a Delta table instead of a folder of Parquet files."""
    decoding: Decoding | None = None
    """Adds typed columns; what cannot be decoded is archived as dead letters."""

    @property
    def topics(self) -> list[str]:
        """The topics that must exist. Empty for a pattern, which may match none yet."""
        option, value = self.subscription
        return topic_names(value) if option == "subscribe" else []

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


def to_stderr(line: str) -> None:
    print(f"barnabas pipeline: {line}", file=sys.stderr, flush=True)


def archive(
    spark: SparkSession,
    job: ArchiveJob,
    *,
    stop: Stop,
    say: Callable[[str], None],
    complain: Callable[[str], None] = to_stderr,
    show: Callable[[int, int], None] = lambda records, all_records: None,
) -> None:
    """Runs the job until it is done or `stop` is requested. Raises the exception of a failed batch, or StreamingQueryException.

    `complain` is called with a line when no broker answers and when one answers again, which a job that follows its topics survives; and
    with one that says what is archived when the job fails. `show` is told how many records are archived after each batch, and of how many.
    """
    files, checkpoint = HadoopFiles(spark, job.target), Checkpoint(HadoopFiles(spark, job.checkpoint_folder), job.checkpoint_folder)
    with TopicAdmin(spark, job.bootstrap_servers, job.consumer_properties) as admin:
        ownership = Ownership(files, job.target)
        subscription = Subscription(files, job.target, checkpoint, admin, job.subscription)
        for topic in job.topics:
            admin.require_topic(topic)
        with ownership.held():
            publisher = (
                DeltaPublisher(spark, files, job.target, checkpoint) if job.is_delta_table else Publisher(files, job.target, checkpoint)
            )
            archiver = Archiver(spark, job, publisher, subscription, ownership)
            archiver.open()
            watch = BrokerWatch(job.bootstrap_servers, job.consumer_properties, complain, learn=admin.brokers)
            try:
                say(opening_line(job, next_batch=checkpoint.last_committed() + 1))
                on_batch = None if job.group is None else GroupProgress(job.group, admin.commit_offsets, complain).note
                progress = ProgressPrinter(say, on_batch, counts=archiver.counts, show=show)
                try:
                    archiver.run(stop=stop, progress=progress, watch=watch, complain=complain)
                except BaseException:
                    complain(progress.so_far())
                    raise
            finally:
                watch.close()


def opening_line(job: ArchiveJob, *, next_batch: int) -> str:
    """For example: archiving orders to archive from batch 12 on, a batch every 60 s; SIGTERM or Ctrl-C ends it."""
    option, value = job.subscription
    what = value if option == "subscribe" else f"topics like {value}"
    start = job.start if job.start_timestamp_ms is None else "the given time"
    since = f"from batch {next_batch} on" if next_batch else f"from {start} on"
    end = "" if job.interval_s is None else f", a batch every {job.interval_s:g} s; SIGTERM or Ctrl-C ends it"
    return f"archiving {what} to {job.target} {since}{end}"


class Archiver:
    """Runs the query of one job, and runs it again if an outage of the brokers has ended it."""

    def __init__(
        self, spark: SparkSession, job: ArchiveJob, publisher: Publisher, subscription: Subscription, ownership: Ownership
    ) -> None:
        self._spark = spark
        self._job = job
        self._publisher = publisher
        self._subscription = subscription
        self._ownership = ownership
        self._counts: dict[int, Counts] = {}  # by batch
        self._tasks_limit = job.files_per_batch_limit or spark.sparkContext.defaultParallelism

    def open(self) -> None:
        """Raises PublicationError or SubscriptionError before anything is written."""
        self._subscription.recall()
        published = self._publisher.open()
        self._subscription.open(published=published, allow_data_loss=self._job.allow_data_loss)

    def run(self, *, stop: Stop, progress: ProgressPrinter, watch: BrokerWatch, complain: Callable[[str], None]) -> None:
        """Returns when the job is done or was stopped. Raises the exception that ended it otherwise.

        Raises BrokerError when it is stopped before its first batch while no broker answers, because it has archived nothing then.
        """
        excused_outages = 0
        while True:
            try:
                self._run_query(stop=stop, progress=progress, watch=watch)
                break
            except (PySparkException, Py4JError, AdminError):
                # One more try for each outage, so that a job which fails for another reason ends.
                if self._job.interval_s is None or watch.outages == excused_outages:
                    raise
                excused_outages = watch.outages
                complain("the query ended on that; it goes on where it stopped when they are back")
            while watch.is_away and not stop.is_requested:
                time.sleep(POLL_INTERVAL_S)
            if stop.is_requested:
                break
            self._publisher.open()  # the failed run may have published a part of a batch
        progress.print_total(stopped=stop.is_requested)
        if stop.is_requested and watch.is_away and not progress.has_batches:
            raise BrokerError(f"stopped before the first batch: {watch.reason}")

    def _run_query(self, *, stop: Stop, progress: ProgressPrinter, watch: BrokerWatch) -> None:
        failures: list[Exception] = []

        def run_batch(batch: DataFrame, batch_id: int) -> None:
            try:
                if stop.is_requested:
                    # Only an exception ends the query between two batches. This batch is planned already, and the next start runs it.
                    raise QueryStoppedError
                self._publisher.publish(batch_id, lambda folder: self._write(batch, batch_id, folder))
            except Exception as e:
                # Spark passes on only the text of its traceback.
                failures.append(e)
                raise

        # With the brokers that the cluster has named: executors and a later run of the query connect again, when a bootstrap server may be
        # down.
        job = replace(self._job, bootstrap_servers=watch.servers)
        writer = archive_rows(read_topics(self._spark, job)).writeStream.foreachBatch(run_batch)
        writer = writer.option("checkpointLocation", self._job.checkpoint_folder).queryName("barnabas-archive")
        interval_s = self._job.interval_s
        trigger = writer.trigger(availableNow=True) if interval_s is None else writer.trigger(processingTime=f"{interval_s} seconds")
        _wait(trigger.start(), failures, stop=stop, progress=progress, watch=watch)

    def _write(self, batch: DataFrame, batch_id: int, folder: str) -> None:
        """Writes the batch where no reader looks, then checks that the batch and this job belong to the archive."""

        def write_to(target: str, rows: DataFrame) -> None:
            in_archive_order(rows, tasks_limit=self._tasks_limit).write.partitionBy(*LAYOUT_COLUMNS).parquet(target)

        if self._job.decoding is None:
            write_to(folder, batch)
        else:
            self._counts[batch_id] = self._job.decoding.write(
                batch, partial(write_to, folder), partial(write_to, f"{folder}/{DEAD_LETTERS}")
            )
        self._subscription.confirm(batch_id)
        self._ownership.check()

    def counts(self, batch_id: int) -> Counts | None:
        """Of a batch that this run has decoded: Spark counts its records twice if it has dead letters."""
        return self._counts.get(batch_id)


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
        # A partition without records after the start time begins at its end instead of failing the job.
        reader = reader.option("startingTimestamp", str(job.start_timestamp_ms)).option("startingOffsetsByTimestampStrategy", "latest")
    return reader.load()


def _wait(query: StreamingQuery, failures: list[Exception], *, stop: Stop, progress: ProgressPrinter, watch: BrokerWatch) -> None:
    """Waits for the query's end and prints its batches. On a stop it ends the query between two batches, or at once if no broker answers.

    Raises the exception that ended the query: that of a batch, which is added to `failures`, or StreamingQueryException.
    """
    try:
        while query.isActive:
            progress.print_new(query.recentProgress)
            if stop.is_requested and (watch.is_away or not query.status["isTriggerActive"]) and not _stops(query):
                return
            time.sleep(POLL_INTERVAL_S)
        query.awaitTermination()
    except StreamingQueryException as e:
        if not failures:
            raise
        if not isinstance(failures[-1], QueryStoppedError):
            raise failures[-1] from e
    finally:
        progress.print_new(query.recentProgress)


def _stops(query: StreamingQuery) -> bool:
    """Ends the query. False if it does not end in time: then a thread waits for brokers that do not answer, and ends with the process."""
    try:
        query.stop()
    except Py4JError as e:
        if "TimeoutException" not in str(e):
            raise
        return False
    return True
