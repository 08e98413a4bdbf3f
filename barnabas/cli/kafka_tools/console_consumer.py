"""kafka-console-consumer: print the records of topics.

Without a group nothing is joined or committed, unlike Kafka's, which joins a group of a random name; so a topic has to be there, and
--include is of the topics that are there when it starts. A null is printed as such, and not given to a deserializer.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from barnabas.cli.cluster_facts import get_topics, partitions_of
from barnabas.cli.connection import Connection
from barnabas.cli.consume.positions import END, START, Bounds, Position
from barnabas.cli.consume.reader import GroupReader, PartitionReader, Sink
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.kafka_tools import coordinator_records
from barnabas.cli.kafka_tools.deserializers import Deserialize, deserializer_of
from barnabas.cli.kafka_tools.run import add_connection, settings_of, unescaped
from barnabas.cli.record_json import TIMESTAMP_TYPES
from barnabas.cli.settings import Settings
from config.loading import read_properties

PACKAGE = "org.apache.kafka.tools.consumer."
NO_OP = "NoOpMessageFormatter"
FORMATTERS = ("DefaultMessageFormatter", NO_OP, *coordinator_records.FORMATTERS)
DEFAULT_FORMATTER = f"{PACKAGE}DefaultMessageFormatter"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--topic", metavar="TOPIC")
    what.add_argument("--include", metavar="REGEX", help="of topics")
    add("--partition", type=int, metavar="N")
    add("--offset", default=None, metavar="OFFSET", help="earliest, latest (default) or a number; with --partition")
    add("--from-beginning", action="store_true")
    add("--max-messages", type=int, metavar="N")
    add("--timeout-ms", type=int, metavar="MS", help="end when no record comes for so long")
    add("--group", metavar="GROUP")
    add("--isolation-level", choices=("read_committed", "read_uncommitted"), default="read_uncommitted")
    add("--formatter-property", "--property", action="append", default=[], metavar="KEY=VALUE", help="print.key=true, key.separator=, …")
    add("--command-property", "--consumer-property", action="append", default=[], metavar="KEY=VALUE", help="of the consumer")
    add(
        "--formatter", default=DEFAULT_FORMATTER, metavar="CLASS", help="Kafka's default one, or NoOpMessageFormatter, which prints nothing"
    )
    add("--formatter-config", metavar="FILE", help="with properties as those of --formatter-property")
    add("--key-deserializer", metavar="CLASS", help="of Kafka's own: org.apache.kafka.common.serialization.LongDeserializer …")
    add("--value-deserializer", metavar="CLASS")
    add("--skip-message-on-error", action="store_true", help="go on after a record that a deserializer cannot read")
    add_connection(parser, "--consumer.config")


def run(options: argparse.Namespace) -> int:
    _check(options)
    sink = TimedSink(options)
    properties = [f"isolation.level={options.isolation_level}", *options.command_property]
    with Connection(settings_of(options, properties)) as connection:
        group = _group(options, connection.settings)
        is_from_start = _is_from_start(options, connection.settings)
        try:
            with _reader(connection, options, group, is_from_start=is_from_start) as reader:
                reader.read(sink)
        except (KeyboardInterrupt, TimeoutError):
            pass  # how it ends, as in Kafka
        finally:
            print(f"Processed a total of {sink.count} messages", file=sys.stderr)
    return DONE


def _check(options: argparse.Namespace) -> None:
    """Raises CommandError, in the words of ConsoleConsumerOptions."""
    if options.partition is not None and options.topic is None:
        raise CommandError("The topic is required when partition is specified.")
    if options.partition is not None and options.from_beginning and options.offset is not None:
        raise CommandError("Options from-beginning and offset cannot be specified together.")
    if options.offset is not None and options.partition is None:
        raise CommandError("The partition is required when offset is specified.")


def _group(options: argparse.Namespace, settings: Settings) -> str | None:
    """That of --group, of a property or of the file; None without one. Raises CommandError if they differ."""
    names = {options.group, settings.librdkafka.get("group.id"), settings_of(options).librdkafka.get("group.id")} - {None}
    if len(names) > 1:
        raise CommandError(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via '--consumer.config') "
            f"do not match. Detected group ids: {', '.join(sorted(map(repr, names)))}"
        )
    if names and options.partition is not None:
        raise CommandError("Options group and partition cannot be specified together.")
    return next(iter(names), None)


def _is_from_start(options: argparse.Namespace, settings: Settings) -> bool:
    reset = settings.librdkafka.get("auto.offset.reset")
    if options.from_beginning and reset not in (None, "earliest"):
        raise CommandError(f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option")
    return bool(options.from_beginning or reset == "earliest")


class TimedSink(Sink):
    """Counts what it writes to standard output. Raises TimeoutError when nothing has come for --timeout-ms."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(sys.stdout.buffer, None, self._format_all, None, options.max_messages)
        self.count = 0
        self._format = _formatter(options)
        self._skips = options.skip_message_on_error
        self._timeout_s = None if options.timeout_ms is None else options.timeout_ms / 1_000
        self._last_s = time.monotonic()

    def write(self, messages: Sequence[Any]) -> None:
        if messages:
            self._last_s = time.monotonic()
        elif self._timeout_s is not None and time.monotonic() - self._last_s > self._timeout_s:
            raise TimeoutError
        super().write(messages)

    def _format_all(self, messages: Sequence[Any]) -> bytes:
        lines = []
        for message in messages:
            self.count += 1
            try:
                lines.append(self._format(message))
            except ValueError as e:
                where = f"{message.topic()}-{message.partition()}, offset {message.offset()}"
                if not self._skips:
                    self._out.write(b"".join(lines))
                    raise CommandError(f"{where}: {e}; --skip-message-on-error goes on") from e
                print(f"{where} is skipped: {e}", file=sys.stderr)
        return b"".join(lines)


def _formatter(options: argparse.Namespace) -> Callable[[Any], bytes]:
    """Raises CommandError, ConfigError."""
    name = options.formatter.rpartition(".")[2]
    if name not in FORMATTERS:
        raise CommandError(
            f"there is no formatter {options.formatter} here; there are {', '.join(f'{PACKAGE}{each}' for each in FORMATTERS)}"
        )
    if name in coordinator_records.FORMATTERS:
        return coordinator_records.formatter_of(name)
    return formatter(["print.value=false"] if name == NO_OP else _formatter_properties(options))


def _formatter_properties(options: argparse.Namespace) -> list[str]:
    """Of the file, the deserializers' options and --formatter-property: the later ones win. Raises ConfigError."""
    given = {} if options.formatter_config is None else read_properties(Path(options.formatter_config))
    of_options = {"key.deserializer": options.key_deserializer, "value.deserializer": options.value_deserializer}
    given |= {key: value for key, value in of_options.items() if value}
    given |= {key: value for key, _, value in (word.partition("=") for word in options.formatter_property)}
    return [f"{key}={value}" for key, value in given.items()]


def formatter(words: Sequence[str]) -> Callable[[Any], bytes]:
    """Kafka's DefaultMessageFormatter: timestamp, partition, offset, headers, key and value, as far as asked for. Raises CommandError."""
    known = dict.fromkeys(("timestamp", "key", "offset", "delivery", "epoch", "partition", "headers", "value"), False) | {"value": True}
    texts = {"key.separator": b"\t", "line.separator": b"\n", "headers.separator": b",", "null.literal": b"null"}
    read: dict[str, Deserialize] = dict.fromkeys(("key.deserializer", "value.deserializer", "headers.deserializer"), bytes)
    for word in words:
        key, _, value = word.partition("=")
        if key.startswith("print.") and key.removeprefix("print.") in known:
            known[key.removeprefix("print.")] = value.strip().lower() == "true"
        elif key in texts:
            texts[key] = unescaped(value)
        elif key in read:
            read[key] = deserializer_of(value)
        else:
            raise CommandError(f"--formatter-property {key} is not known")
    null, separator = texts["null.literal"], texts["key.separator"]
    of_key, of_value, of_header = (read[f"{each}.deserializer"] for each in ("key", "value", "headers"))

    def headers(message: Any) -> bytes:
        found = [name.encode() + b":" + (null if value is None else of_header(value)) for name, value in message.headers() or ()]
        return texts["headers.separator"].join(found) if found else b"NO_HEADERS"

    def timestamp(message: Any) -> bytes:
        kind, time_ms = message.timestamp()
        return f"{TIMESTAMP_TYPES[kind]}:{time_ms}".encode() if kind else b"NO_TIMESTAMP"

    pieces: dict[str, Callable[[Any], bytes]] = {
        "timestamp": timestamp,
        "partition": lambda message: b"Partition:%d" % message.partition(),
        "offset": lambda message: b"Offset:%d" % message.offset(),
        "delivery": lambda message: b"Delivery:NOT_PRESENT",  # of share groups
        "epoch": lambda message: b"Epoch:NOT_PRESENT",  # Kafka's tool does not give it to its formatter either
        "headers": headers,
        "key": lambda message: null if message.key() is None else of_key(message.key()),
        "value": lambda message: null if message.value() is None else of_value(message.value()),
    }
    chosen = [piece for name, piece in pieces.items() if known[name]]
    end = texts["line.separator"] if chosen else b""
    return lambda message: separator.join([piece(message) for piece in chosen]) + end


def _reader(
    connection: Connection, options: argparse.Namespace, group: str | None, *, is_from_start: bool
) -> PartitionReader | GroupReader:
    if group is not None:
        # A regular expression of librdkafka's: it begins with ^.
        topics = [options.topic if options.include is None else f"^({options.include})$"]
        return GroupReader(connection, group, topics, "earliest" if is_from_start else "latest")
    partitions = partitions_of(
        get_topics(connection, [options.topic]) if options.include is None else _included(connection, options.include)
    )
    chosen = [each for each in partitions if options.partition in (None, each[1])]
    if not chosen:
        raise CommandError(f"topic {options.topic} has no partition {options.partition}")
    bounds = Bounds(connection, chosen, read_committed=False)
    return PartitionReader(connection, bounds.resolve(START if is_from_start and options.offset is None else _position(options)), None)


def _included(connection: Connection, text: str) -> dict[str, Any]:
    """The topics whose whole name the regular expression matches. Raises CommandError."""
    try:
        pattern = re.compile(text)
    except re.error as e:
        raise CommandError(f"{text} is an invalid regex.") from e
    found = {name: topic for name, topic in sorted(connection.metadata().topics.items()) if pattern.fullmatch(name)}
    if not found:
        raise CommandError(f"no topic matches {text}")
    return found


def _position(options: argparse.Namespace) -> Position:
    offset = (options.offset or "latest").lower()
    if offset in ("earliest", "latest"):
        return START if offset == "earliest" else END
    if not offset.isdecimal():
        raise CommandError(
            f"The provided offset value '{options.offset}' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."
        )
    return Position("offset", int(offset))
