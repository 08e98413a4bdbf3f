"""Print the records of topics, from the beginning and on.

Without --group nothing is joined or committed, and no topic is made by reading. Only committed records are read, unless
-X isolation.level=read_uncommitted.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import INTERNAL, Partition, get_topics, partitions_of, topics_of
from barnabas.cli.connection import Connection
from barnabas.cli.consume import filters, formats
from barnabas.cli.consume.decoding import Decoding
from barnabas.cli.consume.positions import END, START, Bounds, Position, Range, parse_range
from barnabas.cli.consume.reader import GroupReader, PartitionReader, Sink
from barnabas.cli.errors import DONE, NotUnderstoodError, RefusedError
from barnabas.cli.schemas import options as schemas
from barnabas.cli.settings import Settings, resolve

OUTPUTS = ("plain", "json", "hex")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topics", nargs="+", metavar="TOPIC")
    add("-r", "--regex", action="store_true", help="the topics are regular expressions of whole names")
    add(
        "-o", "--offset", default="", metavar="POSITION[:POSITION]",
        help="start, end, 7, +7, -7 (the last 7 of each partition), @2026-01-31T10:00, @-1h; two of them: until there (start)",
    )  # fmt: skip
    add("-e", "--exit", action="store_true", help="end at what is the end now")
    add("-n", "-c", "--num", "--count", type=int, metavar="N", help="end after N records")
    add("--tail", type=int, metavar="N", help="the last N records by their times, and end")
    add("-p", "--partition", "--partitions", type=int, action="append", default=[], metavar="N", help="only these (all)")
    add("-g", "--group", metavar="GROUP", help="read as a member of the group, and commit what was printed")
    add("--output", choices=OUTPUTS, default="plain", help="plain: a value a line (default)")
    add("-J", "--json", dest="output", action="store_const", const="json", help="as --output json")
    add("-f", "--format", metavar="FORMAT", help="kcat's or rpk's, as in '%%k %%s\\n': docs/cli.md")
    filters.add_arguments(parser)
    schemas.add_arguments(parser)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve(options)
    span = _range(options)
    write = _format(options)
    clean = formats.for_terminal if sys.stdout.isatty() else None
    codecs = schemas.make_codecs(options, options.topics[0], settings.schemas)
    decoding = None if codecs is None else Decoding(codecs)
    sink = Sink(sys.stdout.buffer, clean, write, filters.make_filter(options), options.num, decoding)
    with Connection(settings) as connection:
        gc.disable()  # records make no cycles, and looking for some takes a quarter of the time
        try:
            if options.group is not None:
                _read_as_member(connection, options, span, sink)
            else:
                _read(connection, options, span, sink)
        except KeyboardInterrupt:
            pass  # how a person ends what has no end
        finally:
            gc.enable()
    if decoding is not None:
        decoding.check()
    return DONE


def _range(options: argparse.Namespace) -> Range:
    """Raises NotUnderstoodError."""
    if options.tail is not None and (options.offset or options.group is not None or options.num is not None):
        raise NotUnderstoodError("--tail says where to begin and to end: leave out --offset, --num and --group")
    if (options.num is not None and options.num < 1) or (options.tail is not None and options.tail < 1):
        raise NotUnderstoodError("a number of records is 1 or more")
    if options.tail is not None:
        return Range(Position("before_end", options.tail), END)
    span = parse_range(options.offset or "start", time.time_ns() // 1_000_000)
    if options.group is not None and (span.start not in (START, END) or span.end is not None or options.exit or options.partition):
        raise NotUnderstoodError("a group goes on where it was: with --group, --offset is start or end, for what it has not read yet")
    return Range(span.start, END) if options.exit and span.end is None else span


def _format(options: argparse.Namespace) -> formats.Write:
    if options.format is not None:
        return formats.formatted(options.format)
    return {"plain": formats.plain, "json": formats.as_json, "hex": formats.formatted(formats.HEX)}[options.output]


def _read(connection: Connection, options: argparse.Namespace, span: Range, sink: Sink) -> None:
    partitions = _partitions(connection, options)
    bounds = Bounds(connection, partitions, read_committed=_is_committed(connection.settings))
    starts = bounds.resolve(span.start)
    if without := [f"{name}-{index}" for name, index in partitions if (name, index) not in starts]:
        raise RefusedError(f"no leader, or no right to read: {', '.join(without)}")
    ends = None if span.end is None else bounds.resolve(span.end)
    with PartitionReader(connection, starts, ends) as reader:
        if options.tail is None:
            reader.read(sink)
        else:
            sink.write(_last(reader.collect(options.tail), options.tail))


def _last(messages: list[Any], count: int) -> list[Any]:
    return sorted(messages, key=lambda message: message.timestamp()[1])[-count:]


def _read_as_member(connection: Connection, options: argparse.Namespace, span: Range, sink: Sink) -> None:
    connection.settings.check_writable()
    topics = [f"^{name}$" for name in options.topics] if options.regex else list(get_topics(connection, options.topics))
    reset = "latest" if span.start == END else "earliest"
    with GroupReader(connection, options.group, topics, reset) as reader:
        reader.read(sink)


def _partitions(connection: Connection, options: argparse.Namespace) -> list[Partition]:
    """Raises CommandError."""
    if options.regex:
        patterns = [arguments.pattern(text) for text in options.topics]
        topics = {
            name: topic
            for name, topic in sorted(topics_of(connection).items())
            if name not in INTERNAL and any(pattern.fullmatch(name) for pattern in patterns)
        }
        if not topics:
            raise RefusedError(f"no topic's name is {' or '.join(options.topics)}")
    else:
        topics = get_topics(connection, dict.fromkeys(options.topics))
    partitions = [each for each in partitions_of(topics) if not options.partition or each[1] in options.partition]
    if missing := set(options.partition) - {index for _, index in partitions}:
        raise NotUnderstoodError(f"there is no partition {', '.join(map(str, sorted(missing)))}")
    return partitions


def _is_committed(settings: Settings) -> bool:
    return settings.librdkafka.get("isolation.level", "read_committed") == "read_committed"
