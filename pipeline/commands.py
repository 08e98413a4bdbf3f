"""Runs the jobs of the command line. It makes all checks that need no Spark first, because a start of Spark takes seconds.

All errors are PipelineErrors, also those of Spark and Java.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.spark.archives.compaction import Compacted, compact
from barnabas.spark.archives.hadoop_files import HadoopFiles
from barnabas.spark.archives.local_files import LocalFiles, local_path_of
from barnabas.spark.archives.reading import refuse_delta_table
from barnabas.spark.archives.replay import Selection
from barnabas.spark.archives.replay import replay as replay_once
from barnabas.spark.archives.verification import verify
from barnabas.spark.client.security import SECURITY_OPTIONS
from barnabas.spark.errors import BarnabasError, BrokerError
from barnabas.spark.sink.options import KNOWN as SINK_OPTIONS
from barnabas.spark.sink.options import read_options as read_sink_options
from pipeline.archive import ArchiveJob, Stop, archive, to_stderr
from pipeline.bar import Bar
from pipeline.brokers import require_topics
from pipeline.decoding import Decoding
from pipeline.driver import Driver
from pipeline.errors import PipelineError, UsageError
from pipeline.findings import findings_json, findings_lines
from pipeline.jobs import Job
from pipeline.options import (
    DEFAULT_SERVERS,
    DELTA,
    FIXED_CONSUMER_PROPERTIES,
    FIXED_PRODUCER_PROPERTIES,
    REGISTRY_LOGIN,
    client_properties,
    server_list,
    topic_names,
)
from pipeline.replay import ReplayJob, replay
from pipeline.session import one_sentence, open_session, require_java
from pipeline.status import add_behind, read_status, to_json, to_lines


def run_archive(arguments: argparse.Namespace) -> int:
    start = arguments.start
    job = ArchiveJob(
        bootstrap_servers=_servers(arguments),
        subscription=("subscribe", arguments.topics) if arguments.topics else ("subscribePattern", arguments.topic_pattern),
        target=arguments.to,
        checkpoint=arguments.checkpoint,
        start=start if isinstance(start, str) else "earliest",
        start_timestamp_ms=start if isinstance(start, int) else None,
        interval_s=arguments.interval if arguments.follow else None,
        records_per_batch_limit=arguments.records_per_batch,
        files_per_batch_limit=arguments.files_per_batch,
        allow_data_loss=arguments.allow_data_loss,
        group=arguments.group,
        consumer_properties=client_properties(arguments.command_config, arguments.consumer_property, FIXED_CONSUMER_PROPERTIES),
        is_delta_table=arguments.table_format == DELTA,
        decoding=_decoding(arguments),
    )
    require_java(os.environ)
    require_topics(job.bootstrap_servers, job.consumer_properties, job.topics)
    stop = Stop()
    stop.listen()
    with _session(arguments, "barnabas archive", with_delta=job.is_delta_table) as spark, Bar("archiving", "records", spark) as bar:
        archive(spark, job, stop=stop, say=bar.around(_print_line), complain=bar.around(to_stderr), show=bar.show)
    return 0


def _decoding(arguments: argparse.Namespace) -> Decoding | None:
    if not arguments.decode:
        if arguments.drop_raw:
            raise UsageError("--drop-raw leaves out the columns of --decode, and there is none")
        return None
    formats = dict(arguments.decode)
    if len(formats) < len(arguments.decode):
        raise UsageError("--decode names a column twice")
    return Decoding.open(
        formats,
        topics=topic_names(arguments.topics or ""),
        drops_raw=arguments.drop_raw,
        registry_login=arguments.command_config.get(REGISTRY_LOGIN),
    )


def run_replay(arguments: argparse.Namespace) -> int:
    _refuse_delta_table(arguments.source, "replay")
    source_topic = arguments.source_topic or arguments.topic
    selection = Selection(source_topic, arguments.from_offset, arguments.to_offset, arguments.from_time, arguments.to_time)
    if arguments.at_least_once:
        if selection != Selection(source_topic) or arguments.id is not None:
            raise UsageError("--at-least-once writes the whole topic: offsets, times and --id are of the other way")
        return _replay_at_least_once(arguments, source_topic)
    servers = _servers(arguments)
    file = {name: text for name, text in arguments.command_config.items() if f"kafka.{name}" in (*SECURITY_OPTIONS, *SINK_OPTIONS)}
    properties = client_properties(file, arguments.producer_property, FIXED_PRODUCER_PROPERTIES)
    kafka = {**{f"kafka.{name}": text for name, text in properties.items()}, "kafka.bootstrap.servers": servers}
    if arguments.ledger is not None:
        kafka["ledger"] = arguments.ledger
    name = arguments.id or f"replay-{uuid.uuid4().hex[:12]}"
    read_sink_options({**kafka, "topic": arguments.topic}, sink=name)
    require_java(os.environ)
    require_topics(servers, properties, [arguments.topic])
    shown: list[tuple[int, int]] = []
    with _session(arguments, "barnabas replay") as spark, Bar("writing", "steps", spark) as bar:

        def show(done: int, steps: int) -> None:
            shown.append((done, steps))
            bar.show(done, steps)

        try:
            written = replay_once(
                spark,
                arguments.source,
                arguments.topic,
                kafka,
                id=name,
                selection=selection,
                timestamps=arguments.timestamps,
                records_per_step=arguments.records_per_batch,
                say=bar.around(_print_line),
                show=show,
            )
        except BaseException:
            if shown:
                done, steps = shown[-1]
                bar.around(to_stderr)(
                    f"{done} of {steps} steps are written; once the cause is gone, go on by the same command with --id {name}"
                )
            raise
    _print_line(f"done: {written:,} records")
    return 0


def _replay_at_least_once(arguments: argparse.Namespace, source_topic: str) -> int:
    job = ReplayJob(
        source=arguments.source,
        source_topic=source_topic,
        topic=arguments.topic,
        bootstrap_servers=_servers(arguments),
        producer_properties=client_properties(arguments.command_config, arguments.producer_property, FIXED_PRODUCER_PROPERTIES),
    )
    require_java(os.environ)
    require_topics(job.bootstrap_servers, job.producer_properties, [job.topic])
    with _session(arguments, "barnabas replay") as spark, Bar("writing", "records", spark) as bar:
        replay(spark, job, say=bar.around(_print_line), complain=bar.around(to_stderr))
    return 0


def run_status(arguments: argparse.Namespace) -> int:
    """Exit code 1 for an archive with files that cannot be read. Spark is started for an archive on another file system only."""
    servers = _named_servers(arguments)
    properties = dict(arguments.command_config)
    if servers is not None:
        require_topics(servers, properties, ())
    local = local_path_of(arguments.archive)
    if local is not None:
        checkpoint = arguments.checkpoint and (local_path_of(arguments.checkpoint) or arguments.checkpoint)
        status = read_status(LocalFiles(), local, checkpoint, None)
    else:
        require_java(os.environ)
        with _session(arguments, "barnabas status", say=to_stderr) as spark:
            status = read_status(HadoopFiles(spark, arguments.archive), arguments.archive, arguments.checkpoint, spark)
    if servers is not None:
        add_behind(status, servers, properties)
    _print_line(json.dumps(to_json(status), indent=2) if arguments.output == "json" else "\n".join(to_lines(status)))
    for file in status.damaged:
        to_stderr(f"{file.path} cannot be read: {file.reason}")
    return 1 if status.damaged else 0


def run_verify(arguments: argparse.Namespace) -> int:
    """Exit code 1 if something is wrong with the archive."""
    _refuse_delta_table(arguments.archive, "verify")
    servers = _servers(arguments)
    properties = client_properties(arguments.command_config, arguments.consumer_property, FIXED_CONSUMER_PROPERTIES)
    require_java(os.environ)
    require_topics(servers, properties, ())
    kafka = {**{f"kafka.{name}": text for name, text in properties.items()}, "kafka.bootstrap.servers": servers}
    with (
        _session(arguments, "barnabas verify", say=to_stderr) as spark,
        Bar("comparing", "records", spark, lines=to_stderr) as bar,
    ):
        complain = bar.around(to_stderr)
        try:
            found = verify(
                spark,
                arguments.archive,
                kafka,
                topics=None if arguments.topics is None else topic_names(arguments.topics),
                checkpoint=arguments.checkpoint,
                source="kafka",
                findings_limit=arguments.limit,
                say=complain,
            )
        except (PySparkException, Py4JError, BrokerError):
            complain("the comparison was broken off, and has changed nothing; once the cause is gone, run the same command again")
            raise
    _print_line(findings_json(found) if arguments.output == "json" else "\n".join(findings_lines(found, arguments.archive)))
    return 0 if found.is_whole else 1


def run_compact(arguments: argparse.Namespace) -> int:
    before_day = (datetime.now(UTC) - timedelta(days=arguments.older_than)).strftime("%Y-%m-%d")
    local = local_path_of(arguments.archive)
    if local is not None and not os.path.isdir(local):
        raise PipelineError(f"{arguments.archive} does not exist")
    _refuse_delta_table(arguments.archive, "compact")
    require_java(os.environ)
    done: list[Compacted] = []

    with _session(arguments, "barnabas compact") as spark, Bar("merging", "folders", spark) as bar:
        print_line = bar.around(_print_line)

        def say(folder: Compacted) -> None:
            done.append(folder)
            files = f"{folder.files_before:,} files became {folder.files_after:,}"
            print_line(f"{folder.topic} {folder.day}: {files}, {folder.records:,} records")

        try:
            compact(spark, arguments.archive, before_day=before_day, target_bytes=arguments.target_size, say=say, show=bar.show)
        except BaseException:
            bar.around(to_stderr)(f"{len(done)} folders are done and stay so; the same command goes on with the rest")
            raise
    before, after = sum(each.files_before for each in done), sum(each.files_after for each in done)
    _print_line(f"done: {before:,} files became {after:,} in {len(done)} folders" if done else "done: there is nothing to merge")
    return 0


def run_jobs(jobs: Sequence[Job], *, is_dry: bool) -> int:
    """One after another, in one session. The first that fails ends it; returns its exit code."""
    for job in jobs if is_dry else ():
        _print_line(f"{job.name}: {job.command_line}")
    if is_dry or not jobs:
        return 0
    require_java(os.environ)
    with_delta = any(getattr(job.arguments, "table_format", None) == DELTA for job in jobs)
    with _session(jobs[0].arguments, "barnabas pipeline", with_delta=with_delta) as spark:
        for number, job in enumerate(jobs):
            _print_line(f"job {job.name}: {job.arguments.command}")
            job.arguments.spark = spark
            try:
                code = int(job.arguments.run(job.arguments))
            except (PipelineError, BarnabasError) as e:
                to_stderr(f"job {job.name}: {e}")
                code = 2 if isinstance(e, UsageError) else 1
            if code:
                rest = ", ".join(each.name for each in jobs[number + 1 :])
                to_stderr(f"job {job.name} failed" + (f"; not run: {rest} (--only NAME runs one)" if rest else ""))
                return code
    return 0


def _refuse_delta_table(archive: str, job: str) -> None:
    """Before Spark starts, where the archive is on this machine."""
    local = local_path_of(archive)
    if local is not None:
        refuse_delta_table(LocalFiles(), local.rstrip("/"), job)


def _named_servers(arguments: argparse.Namespace) -> str | None:
    """None if neither the command line nor the client's file names a broker."""
    named = arguments.bootstrap_servers or arguments.command_config.get("bootstrap.servers")
    return None if named is None else server_list(named)


def _servers(arguments: argparse.Namespace) -> str:
    return str(arguments.bootstrap_servers or server_list(arguments.command_config.get("bootstrap.servers", DEFAULT_SERVERS)))


@contextlib.contextmanager
def _session(
    arguments: argparse.Namespace, app_name: str, say: Callable[[str], None] | None = None, *, with_delta: bool = False
) -> Iterator[SparkSession]:
    """A session that is stopped at the end; `say` gets a line before it starts. Exceptions of Spark become PipelineErrors of one line."""
    shared: SparkSession | None = getattr(arguments, "spark", None)
    if shared is not None:  # that of `run`, which is stopped when its last job has ended
        try:
            yield shared
        except (PySparkException, Py4JError) as e:
            raise PipelineError(innermost_sentence(e)) from e
        return
    driver = Driver()
    (say or _print_line)(f"starting Spark on {arguments.master}")
    try:
        spark = open_session(
            app_name,
            master=arguments.master,
            jars=arguments.jars,
            settings=dict(arguments.conf),
            log_level=arguments.log_level,
            driver=driver,
            with_delta=with_delta,
        )
        try:
            yield spark
        finally:
            spark.stop()
    except (PySparkException, Py4JError) as e:
        raise PipelineError(innermost_sentence(e)) from e
    finally:
        driver.end()


def innermost_sentence(error: Exception) -> str:
    """The sentence of the innermost cause. Spark wraps it in its own exceptions, each with a stack."""
    text, kind = str(error), type(error).__name__
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text, kind = cause.getMessage() or "", cause.getClass().getSimpleName()
    sentence = one_sentence(text)
    # The message of UnknownHostException and its like is only a name.
    return sentence if " " in sentence else f"{kind}: {sentence}" if sentence else kind


def _print_line(line: str) -> None:
    print(line, flush=True)
