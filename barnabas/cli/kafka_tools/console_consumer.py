"""kafka-console-consumer: print the records of topics.

Without --group nothing is joined or committed, unlike Kafka's, which joins a group of a random name; so a topic has to be there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.cli.cluster_facts import get_topics, partitions_of
from barnabas.cli.connection import Connection
from barnabas.cli.consume.positions import END, START, Bounds, Position
from barnabas.cli.consume.reader import GroupReader, PartitionReader, Sink
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.kafka_tools.run import add_connection, settings_of
from barnabas.cli.record_json import TIMESTAMP_TYPES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--topic", required=True, metavar="TOPIC")
    add("--partition", type=int, metavar="N")
    add("--offset", default=None, metavar="OFFSET", help="earliest, latest (default) or a number; with --partition")
    add("--from-beginning", action="store_true")
    add("--max-messages", type=int, metavar="N")
    add("--timeout-ms", type=int, metavar="MS", help="end when no record comes for so long")
    add("--group", metavar="GROUP")
    add("--isolation-level", choices=("read_committed", "read_uncommitted"), default="read_uncommitted")
    add("--formatter-property", "--property", action="append", default=[], metavar="KEY=VALUE", help="print.key=true, key.separator=, …")
    add("--command-property", "--consumer-property", action="append", default=[], metavar="KEY=VALUE", help="of the consumer")
    add("--skip-message-on-error", action="store_true", help="understood, and without effect: bytes are printed as they are")
    add_connection(parser, "--consumer.config")


def run(options: argparse.Namespace) -> int:
    sink = TimedSink(options)
    with Connection(settings_of(options, [f"isolation.level={options.isolation_level}", *options.command_property])) as connection:
        try:
            with _reader(connection, options) as reader:
                reader.read(sink)
        except (KeyboardInterrupt, TimeoutError):
            pass  # how it ends, as in Kafka
        finally:
            print(f"Processed a total of {sink.count} messages", file=sys.stderr)
    return DONE


class TimedSink(Sink):
    """Counts what it writes to standard output. Raises TimeoutError when nothing has come for --timeout-ms."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(sys.stdout.buffer, None, self._format_all, None, options.max_messages)
        self.count = 0
        self._format = formatter(options.formatter_property)
        self._timeout_s = None if options.timeout_ms is None else options.timeout_ms / 1_000
        self._last_s = time.monotonic()

    def write(self, messages: Sequence[Any]) -> None:
        if messages:
            self._last_s = time.monotonic()
        elif self._timeout_s is not None and time.monotonic() - self._last_s > self._timeout_s:
            raise TimeoutError
        super().write(messages)

    def _format_all(self, messages: Sequence[Any]) -> bytes:
        self.count += len(messages)
        return b"".join(map(self._format, messages))


def formatter(words: Sequence[str]) -> Callable[[Any], bytes]:
    """Kafka's DefaultMessageFormatter: timestamp, partition, offset, headers, key and value, as far as asked for. Raises CommandError."""
    known = dict.fromkeys(("timestamp", "key", "offset", "delivery", "epoch", "partition", "headers", "value"), False) | {"value": True}
    texts = {"key.separator": b"\t", "line.separator": b"\n", "headers.separator": b",", "null.literal": b"null"}
    for word in words:
        key, _, value = word.partition("=")
        if key.startswith("print.") and key.removeprefix("print.") in known:
            known[key.removeprefix("print.")] = value.strip().lower() == "true"
        elif key in texts:
            texts[key] = value.encode().decode("unicode_escape").encode()
        else:
            raise CommandError(f"--formatter-property {key} is not known")
    null, separator = texts["null.literal"], texts["key.separator"]

    def headers(message: Any) -> bytes:
        found = [name.encode() + b":" + (null if value is None else value) for name, value in message.headers() or ()]
        return texts["headers.separator"].join(found) if found else b"NO_HEADERS"

    def timestamp(message: Any) -> bytes:
        kind, time_ms = message.timestamp()
        return f"{TIMESTAMP_TYPES[kind]}:{time_ms}".encode() if kind else b"NO_TIMESTAMP"

    pieces: dict[str, Callable[[Any], bytes]] = {
        "timestamp": timestamp,
        "partition": lambda message: b"Partition:%d" % message.partition(),
        "offset": lambda message: b"Offset:%d" % message.offset(),
        "headers": headers,
        "key": lambda message: null if message.key() is None else message.key(),
        "value": lambda message: null if message.value() is None else message.value(),
    }
    chosen = [piece for name, piece in pieces.items() if known[name]]
    return lambda message: separator.join([piece(message) for piece in chosen]) + texts["line.separator"]


def _reader(connection: Connection, options: argparse.Namespace) -> PartitionReader | GroupReader:
    if options.offset is not None and options.partition is None:
        raise CommandError("The partition is required when offset is specified.")
    if options.group is not None and options.partition is None:
        return GroupReader(connection, options.group, [options.topic], "earliest" if options.from_beginning else "latest")
    partitions = partitions_of(get_topics(connection, [options.topic]))
    chosen = [each for each in partitions if options.partition in (None, each[1])]
    if not chosen:
        raise CommandError(f"topic {options.topic} has no partition {options.partition}")
    bounds = Bounds(connection, chosen, read_committed=False)
    return PartitionReader(connection, bounds.resolve(_position(options)), None)


def _position(options: argparse.Namespace) -> Position:
    if options.from_beginning or options.offset == "earliest":
        return START
    if options.offset in (None, "latest"):
        return END
    if not options.offset.isdigit():
        raise CommandError("The provided offset value is incorrect. Valid values are 'earliest', 'latest', or a non-negative number.")
    return Position("offset", int(options.offset))
