"""`barnabas pipeline`: reads the command line, runs the job, turns errors that a person can mend into one line on stderr.

Exit codes: 0 done or stopped as asked, 1 it failed, 2 bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline.admin import AdminError
from pipeline.archive import ArchiveJob, Stop, archive
from pipeline.connector import ConnectorError
from pipeline.hadoop_files import ArchiveFileError
from pipeline.publication import PublicationError
from pipeline.replay import ReplayError, ReplayJob, replay
from pipeline.session import SILENT, SessionError, one_sentence, open_session

EXIT_FAILED = 1
FOLLOW_INTERVAL_S = 60.0
KNOWN_ERRORS = (AdminError, ConnectorError, SessionError, ArchiveFileError, PublicationError, ReplayError)


def main(argv: list[str]) -> int:
    """Run `barnabas pipeline` with these arguments. Returns the exit code; bad usage raises SystemExit(2) as argparse does."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except KNOWN_ERRORS as e:
        return _fail(str(e))
    except (PySparkException, Py4JError) as e:
        return _fail(_one_line(e))


def _archive(arguments: argparse.Namespace) -> int:
    start = _start_options(arguments.start)
    job = ArchiveJob(
        bootstrap_servers=arguments.bootstrap_servers,
        subscription=("subscribe", arguments.topics) if arguments.topics else ("subscribePattern", arguments.topic_pattern),
        target=arguments.to,
        checkpoint=arguments.checkpoint,
        start=start if isinstance(start, str) else "earliest",
        start_timestamp_ms=start if isinstance(start, int) else None,
        interval_s=arguments.interval if arguments.follow else None,
        records_per_batch_limit=arguments.records_per_batch,
        files_per_batch_limit=arguments.files_per_batch,
        allow_data_loss=arguments.allow_data_loss,
        consumer_properties=_properties(arguments.consumer_property),
    )
    stop = Stop()
    stop.listen()
    spark = _session(arguments, "barnabas archive")
    try:
        archive(spark, job, stop=stop, say=_say)
    finally:
        spark.stop()
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    job = ReplayJob(
        source=arguments.source,
        source_topic=arguments.source_topic or arguments.topic,
        topic=arguments.topic,
        bootstrap_servers=arguments.bootstrap_servers,
        producer_properties=_properties(arguments.producer_property),
    )
    spark = _session(arguments, "barnabas replay")
    try:
        replay(spark, job, say=_say)
    finally:
        spark.stop()
    return 0


def _session(arguments: argparse.Namespace, app_name: str) -> SparkSession:
    settings = _properties(arguments.conf)
    return open_session(app_name, master=arguments.master, jars=arguments.jars, settings=settings, log_level=arguments.log_level)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="barnabas pipeline", description="Spark jobs around a Kafka-speaking broker.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--bootstrap-servers", default="localhost:9092", metavar="HOST:PORT,…")
    common.add_argument("--master", default="local[*]", metavar="URL", help="the Spark cluster (default: this machine)")
    common.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting; may be repeated")
    common.add_argument(
        "--jars", action="append", default=[], metavar="PATH", help="the Kafka connector's jars or a folder of them; fetched without it"
    )
    common.add_argument("--log-level", default=SILENT, metavar="LEVEL", help="of Spark's log on stderr: OFF (default), ERROR, WARN, INFO …")
    _add_archive(commands.add_parser("archive", parents=[common], help="write topics to Parquet, every record once"))
    _add_replay(commands.add_parser("replay", parents=[common], help="write an archive back into a topic"))
    return parser


def _add_archive(command: argparse.ArgumentParser) -> None:
    topics = command.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topics", metavar="A,B,…")
    topics.add_argument("--topic-pattern", metavar="REGEX", help="Java's syntax; it must match the whole name")
    command.add_argument("--to", required=True, metavar="DIR", help="the archive: a folder or the URI of one")
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--once", action="store_true", help="archive what is there now, then end (the default)")
    mode.add_argument("--follow", action="store_true", help="go on until SIGTERM or Ctrl-C")
    command.add_argument(
        "--interval",
        type=_positive(float),
        default=FOLLOW_INTERVAL_S,
        metavar="SECONDS",
        help="between two batches of --follow (default: 60)",
    )
    command.add_argument("--checkpoint", metavar="DIR", help="where progress is kept (default: _checkpoint in the archive)")
    command.add_argument(
        "--start", default="earliest", metavar="WHERE", help="of the first run: earliest, latest or a time such as 2026-11-21T08:00 (UTC)"
    )
    command.add_argument("--records-per-batch", type=_positive(int), default=1_000_000, metavar="N", help="at most (default: 1000000)")
    command.add_argument(
        "--files-per-batch", type=_positive(int), metavar="N", help="at most, per topic and day (default: the cluster's cores)"
    )
    command.add_argument("--allow-data-loss", action="store_true", help="go on where records were deleted before they were archived")
    command.add_argument(
        "--consumer-property", action="append", default=[], metavar="KEY=VALUE", help="of Kafka's consumer; may be repeated"
    )
    command.set_defaults(run=_archive)


def _add_replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("--from", required=True, dest="source", metavar="DIR", help="the archive")
    command.add_argument("--topic", required=True, help="the topic to write to; it must exist and have enough partitions")
    command.add_argument("--source-topic", metavar="TOPIC", help="the archived topic (default: of the same name)")
    command.add_argument(
        "--producer-property", action="append", default=[], metavar="KEY=VALUE", help="of Kafka's producer; may be repeated"
    )
    command.set_defaults(run=_replay)


def _positive(kind: type) -> object:
    def parse(text: str) -> object:
        value = kind(text)
        if value <= 0:
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return value

    return parse


def _start_options(text: str) -> str | int:
    """`earliest`, `latest`, or the milliseconds since 1970 of an ISO 8601 time, which is UTC when it says nothing else."""
    if text in ("earliest", "latest"):
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as e:
        raise ConnectorError(f"--start {text}: neither earliest nor latest nor a time such as 2026-11-21T08:00") from e
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _properties(pairs: Sequence[str]) -> Mapping[str, str]:
    """KEY=VALUE words as a mapping."""
    for pair in pairs:
        if "=" not in pair:
            raise ConnectorError(f"{pair}: a setting is given as KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


def _one_line(error: Exception) -> str:
    """The sentence of the innermost cause: Spark wraps it in its own, each with a stack."""
    text, kind = str(error), type(error).__name__
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text, kind = cause.getMessage() or "", cause.getClass().getSimpleName()
    sentence = one_sentence(text)
    # UnknownHostException and its like say no more than a name.
    return sentence if " " in sentence else f"{kind}: {sentence}" if sentence else kind


def _say(line: str) -> None:
    print(line, flush=True)


def _fail(message: str) -> int:
    print(f"barnabas pipeline: {message}", file=sys.stderr)
    return EXIT_FAILED
