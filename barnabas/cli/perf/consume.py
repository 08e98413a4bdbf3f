"""Read a topic as fast as it goes and show the rate: from the beginning to what is the end now, or the records that come from now on.

With --latency each record counts with the time between its timestamp and its arrival here, for which the clocks have to agree. No group is
joined.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Sequence
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import get_topics, partitions_of
from barnabas.cli.connection import Connection
from barnabas.cli.consume.positions import END, START, Bounds
from barnabas.cli.consume.reader import PartitionReader
from barnabas.cli.errors import DONE, NotUnderstoodError, RefusedError
from barnabas.cli.output import Output
from barnabas.cli.perf.meter import Meter, show
from barnabas.cli.settings import resolve
from barnabas.cli.times import parse_duration_ms

BATCH_COUNT = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topic", metavar="TOPIC")
    add("-n", "--num", "--messages", type=int, metavar="N", help="end after N records (at what is the end now)")
    add("-d", "--duration", metavar="TIME", help="end after that long, as in 30s")
    add("--new", action="store_true", help="records that come from now on; needs --num or --duration")
    add("--latency", action="store_true", help="also how old records are when they arrive")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve(options)
    if options.num is not None and options.num < 1:
        raise NotUnderstoodError("--num is 1 or more")
    if options.new and options.num is None and options.duration is None:
        raise NotUnderstoodError("--new has no end: --num or --duration says when it is enough")
    duration_s = None if options.duration is None else parse_duration_ms(options.duration) / 1_000
    with Connection(settings) as connection:
        partitions = partitions_of(get_topics(connection, [options.topic]))
        bounds = Bounds(connection, partitions, read_committed=True)
        starts = bounds.resolve(END if options.new else START)
        if without := [f"{name}-{index}" for name, index in partitions if (name, index) not in starts]:
            raise RefusedError(f"no leader, or no right to read: {', '.join(without)}")
        ends = None if options.new or options.duration is not None else bounds.resolve(END)
        with PartitionReader(connection, starts, ends) as reader:
            sink = Count(options.num, duration_s, has_latency=options.latency)
            gc.disable()  # as in `consume`
            try:
                reader.read(sink)
            except KeyboardInterrupt:
                pass  # the summary tells what was read until then
            finally:
                gc.enable()
                sink.meter.end()
    show(Output(options.output), sink.meter.summary(), "read")
    return DONE


class Count:
    """Counts the records that a reader reads."""

    def __init__(self, count_max: int | None, duration_s: float | None, *, has_latency: bool) -> None:
        self.meter = Meter()
        self._left = count_max
        self._duration_s = duration_s
        self._has_latency = has_latency

    @property
    def is_full(self) -> bool:
        return self._left == 0 or (self._duration_s is not None and self.meter.elapsed_s() >= self._duration_s)

    def batch_count(self) -> int:
        return BATCH_COUNT if self._left is None else min(self._left, BATCH_COUNT)

    def write(self, messages: Sequence[Any]) -> None:
        if self._left is not None:
            messages = messages[: self._left]
            self._left -= len(messages)
        self.meter.add(len(messages), sum(map(len, messages)))
        if self._has_latency:
            now_s = time.time()
            for message in messages:
                kind, timestamp_ms = message.timestamp()
                if kind:
                    self.meter.latencies.add(now_s - timestamp_ms / 1_000)
        self.meter.tick()
