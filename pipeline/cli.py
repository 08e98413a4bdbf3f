"""`barnabas pipeline`: reads the command line and prints expected errors as one line on stderr.

Exit codes: 0 done or stopped by a signal, 1 failed, 2 bad usage. Spark is imported after the arguments were checked, so that help and
usage errors need neither pyspark nor Java.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from typing import TypeVar

from barnabas.spark.errors import BarnabasError
from pipeline import options
from pipeline.errors import PipelineError, UsageError
from pipeline.jobs import chosen, read_jobs

EXIT_FAILED = 1
EXIT_USAGE = 2
FOLLOW_INTERVAL_S = 60.0
LIBRARIES = ("pyspark", "confluent_kafka")
Value = TypeVar("Value")


def main(argv: list[str]) -> int:
    """Run `barnabas pipeline` with these arguments. Returns the exit code; --help and bad usage raise SystemExit as argparse does."""
    arguments = parser().parse_args(argv)
    try:
        _require_libraries()
        return int(arguments.run(arguments))
    except UsageError as e:
        return _fail(str(e), EXIT_USAGE)
    except (PipelineError, BarnabasError) as e:
        return _fail(str(e), EXIT_FAILED)


def _archive(arguments: argparse.Namespace) -> int:
    from pipeline.commands import run_archive

    return run_archive(arguments)


def _replay(arguments: argparse.Namespace) -> int:
    from pipeline.commands import run_replay

    return run_replay(arguments)


def _status(arguments: argparse.Namespace) -> int:
    from pipeline.commands import run_status

    return run_status(arguments)


def _verify(arguments: argparse.Namespace) -> int:
    from pipeline.commands import run_verify

    return run_verify(arguments)


def _compact(arguments: argparse.Namespace) -> int:
    from pipeline.commands import run_compact

    return run_compact(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from pipeline.commands import run_jobs

    jobs = read_jobs(arguments.file, parser)
    return run_jobs(chosen(jobs, arguments.only, arguments.file), is_dry=arguments.dry_run)


def _require_libraries() -> None:
    """The pipeline is an extra: without its libraries, says how to get them."""
    for name in LIBRARIES:
        if importlib.util.find_spec(name) is None:
            # This interpreter's pip: another one would install Barnabas again, from the package index.
            raise PipelineError(f"this needs {name}; install it with: {sys.executable} -m pip install 'barnabas[pipeline]'")


def parser(kind: type[argparse.ArgumentParser] = argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Of all commands, with their options. `kind` is the class that it is made of."""
    made = kind(prog="barnabas pipeline", description="Spark jobs around a Kafka-speaking broker.")
    commands = made.add_subparsers(metavar="COMMAND", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--bootstrap-servers",
        type=_checked(options.server_list),
        metavar="HOST:PORT,…",
        help="of a cluster name two or three, such as one:9092,two:9092: one of them must be alive when the job starts, "
        f"and it is asked for the others (default: those of --command-config, else {options.DEFAULT_SERVERS})",
    )
    common.add_argument(
        "--command-config",
        type=_checked(options.command_config),
        default={},
        metavar="FILE",
        help="a Java client's properties: bootstrap.servers, security.protocol, ssl.… and sasl.…",
    )
    common.add_argument("--master", default="local[*]", metavar="URL", help="the Spark cluster (default: this machine)")
    common.add_argument(
        "--conf",
        type=_checked(options.spark_setting),
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a Spark setting; may be repeated",
    )
    common.add_argument(
        "--jars", action="append", default=[], metavar="PATH", help="the Kafka connector's jars or a folder of them; fetched without it"
    )
    common.add_argument(
        "--log-level",
        type=_checked(options.log_level),
        default=options.LOG_LEVELS[0],
        metavar="LEVEL",
        help="of Spark's log on stderr: OFF (default), ERROR, WARN, INFO …",
    )
    _add_archive(commands.add_parser("archive", parents=[common], help="write topics to Parquet, every record once"))
    _add_replay(commands.add_parser("replay", parents=[common], help="write an archive back into a topic"))
    _add_status(commands.add_parser("status", parents=[common], help="what an archive holds, and how far it is"))
    _add_verify(commands.add_parser("verify", parents=[common], help="compare an archive with its topics"))
    _add_compact(commands.add_parser("compact", parents=[common], help="merge an archive's small files"))
    _add_run(commands.add_parser("run", help="run the jobs that a file describes"))
    return made


def _add_archive(command: argparse.ArgumentParser) -> None:
    topics = command.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topics", type=_checked(options.topic_list), metavar="A,B,…")
    topics.add_argument("--topic-pattern", metavar="REGEX", help="Java's syntax; it must match the whole name")
    command.add_argument("--to", required=True, metavar="DIR", help="the archive: a folder or the URI of one")
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--once", action="store_true", help="archive what is there now, then end (the default)")
    mode.add_argument("--follow", action="store_true", help="go on until SIGTERM or Ctrl-C")
    command.add_argument(
        "--interval",
        type=_checked(options.seconds),
        default=FOLLOW_INTERVAL_S,
        metavar="SECONDS",
        help="between two batches of --follow (default: 60)",
    )
    command.add_argument("--checkpoint", metavar="DIR", help="where progress is kept (default: _checkpoint in the archive)")
    command.add_argument(
        "--start",
        type=_checked(options.start_position),
        default="earliest",
        metavar="WHERE",
        help="of the first run: earliest, latest or a time such as 2026-11-21T08:00 (UTC)",
    )
    command.add_argument(
        "--records-per-batch", type=_checked(options.count), default=1_000_000, metavar="N", help="at most (default: 1000000)"
    )
    command.add_argument(
        "--files-per-batch", type=_checked(options.count), metavar="N", help="at most, per topic and day (default: the cluster's cores)"
    )
    command.add_argument(
        "--group", type=_checked(options.group_name), metavar="NAME", help="a group that has the progress too, for kafka-consumer-groups"
    )
    command.add_argument(
        "--decode",
        type=_checked(options.column_format),
        action="append",
        default=[],
        metavar="COLUMN=FORMAT",
        help="add typed_value (typed_key) to the columns, such as value=avro:order.avsc; json, avro, protobuf, also with confluent- "
        "before it; what cannot be decoded is in _dead_letters, with the reason",
    )
    command.add_argument(
        "--table-format",
        choices=(options.PARQUET, options.DELTA),
        default=options.PARQUET,
        help="a folder of Parquet files (the default), or a Delta table, whose jar is fetched too",
    )
    command.add_argument("--drop-raw", action="store_true", help="leave out the columns that are decoded; such an archive has no replay")
    command.add_argument("--allow-data-loss", action="store_true", help="go on where records were deleted before they were archived")
    _add_consumer_property(command)
    command.set_defaults(run=_archive)


def _add_replay(command: argparse.ArgumentParser) -> None:
    command.add_argument("--from", dest="source", required=True, metavar="DIR", help="the archive")
    command.add_argument("--topic", required=True, metavar="TOPIC", help="where to; it must exist")
    command.add_argument("--source-topic", metavar="TOPIC", help="which of the archived topics (default: the same name)")
    command.add_argument(
        "--id",
        type=_checked(options.replay_id),
        metavar="NAME",
        help="of this replay: with the same one a killed replay goes on (default: a new one)",
    )
    command.add_argument("--from-offset", type=_checked(options.offset), metavar="N", help="in each partition the first offset to write")
    command.add_argument("--to-offset", type=_checked(options.offset), metavar="N", help="in each partition the offset to end before")
    command.add_argument(
        "--from-time", type=_checked(options.time_ms), metavar="TIME", help="of the first records, as 2026-11-21T08:00 (UTC)"
    )
    command.add_argument("--to-time", type=_checked(options.time_ms), metavar="TIME", help="before which the records are")
    command.add_argument(
        "--timestamps",
        choices=("original", "now"),
        default="original",
        help="the archived ones, or the time of writing (default: original)",
    )
    command.add_argument(
        "--records-per-batch", type=_checked(options.count), default=1_000_000, metavar="N", help="at most (default: 1000000)"
    )
    command.add_argument("--ledger", metavar="TOPIC", help="of the sink: what is written already (default: barnabas-sinks)")
    command.add_argument(
        "--at-least-once",
        action="store_true",
        help="by Spark's own sink, for workers without Python: all records, with new timestamps, again if it is repeated",
    )
    command.add_argument(
        "--producer-property",
        type=_checked(options.producer_property),
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="compression.type, batch.size or transaction.timeout.ms; with --at-least-once any of Kafka's producer; may be repeated",
    )
    command.set_defaults(run=_replay)


def _add_status(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "archive", metavar="ARCHIVE", help="a folder or the URI of one; of brokers that are named it asks for the ends too"
    )
    command.add_argument("--checkpoint", metavar="DIR", help="where progress is kept (default: _checkpoint in the archive)")
    _add_output(command)
    command.set_defaults(run=_status)


def _add_verify(command: argparse.ArgumentParser) -> None:
    command.add_argument("archive", metavar="ARCHIVE", help="a folder or the URI of one")
    command.add_argument("--topics", type=_checked(options.topic_list), metavar="A,B,…", help="these alone (default: all of the archive)")
    command.add_argument("--checkpoint", metavar="DIR", help="where progress is kept (default: _checkpoint in the archive)")
    command.add_argument(
        "--limit",
        type=_checked(options.count),
        default=1000,
        metavar="N",
        help="how many findings are printed (default: 1000)",
    )
    _add_consumer_property(command)
    _add_output(command)
    command.set_defaults(run=_verify)


def _add_consumer_property(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--consumer-property",
        type=_checked(options.consumer_property),
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of Kafka's consumer; may be repeated",
    )


def _add_compact(command: argparse.ArgumentParser) -> None:
    command.add_argument("archive", metavar="ARCHIVE", help="a folder or the URI of one")
    command.add_argument(
        "--older-than",
        type=_checked(options.age_days),
        default=0,
        metavar="7d",
        help="days that have ended so long ago (default: 0d, all that have ended)",
    )
    command.add_argument(
        "--target-size",
        type=_checked(options.size_bytes),
        default=options.size_bytes("256MB"),
        metavar="SIZE",
        help="of the files that are made; files of half of it or more stay (default: 256MB)",
    )
    command.set_defaults(run=_compact)


def _add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE.toml", help="a table [[job]] for each, with the names of the options as keys")
    command.add_argument("--only", action="append", default=[], metavar="NAME", help="this job; may be repeated")
    command.add_argument("--dry-run", action="store_true", help="check the file, and print the commands")
    command.set_defaults(run=_run)


def _add_output(command: argparse.ArgumentParser) -> None:
    command.add_argument("--output", choices=("table", "json"), default="table", help="how it is printed (default: table)")


def _checked(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """Converts a function of options.py into a type of argparse."""

    def checked(text: str) -> Value:
        try:
            return parse(text)
        except UsageError as e:
            raise argparse.ArgumentTypeError(str(e)) from e

    return checked


def _fail(message: str, exit_code: int) -> int:
    print(f"barnabas pipeline: {message}", file=sys.stderr)
    return exit_code
