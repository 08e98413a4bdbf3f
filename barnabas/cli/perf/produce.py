"""Write a load of records to a topic, as fast as it goes or at a rate, and show rate and latency: from the producer to the acknowledgement.

What the records hold cannot be compressed well. Further settings of the producer are given with -X, such as -X linger.ms=5.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from barnabas.cli import arguments
from barnabas.cli.connection import Connection, from_kafka, make
from barnabas.cli.errors import DONE, CommandError, NoBrokerError, NotUnderstoodError
from barnabas.cli.output import Output
from barnabas.cli.perf.meter import Meter, show
from barnabas.cli.settings import resolve
from barnabas.cli.times import parse_duration_ms
from barnabas.cli.topic_facts import check_topic

RECORDS = 1_000_000
SIZE_BYTES = 100
PAYLOADS = 1_000
"""Different values, which are made before."""
TURN = 100
"""Records between two looks at the clock."""
WAIT_S = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topic", metavar="TOPIC")
    add("-n", "--num", "--num-records", type=int, metavar="N", help=f"records ({RECORDS:,}, or what --duration takes)")
    add("-d", "--duration", metavar="TIME", help="how long, as in 30s, instead of how many")
    add("-s", "--size", "--record-size", type=int, default=SIZE_BYTES, metavar="BYTES", help=f"of a value ({SIZE_BYTES})")
    add("-r", "--rate", "--throughput", type=float, metavar="N", help="records a second (as many as it takes)")
    add("-k", "--keys", type=int, metavar="N", help="of so many different keys (none)")
    add("-p", "--partition", type=int, metavar="N", help="(all, by the key or in turn)")
    add("-z", "--compression", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd (none)")
    add("--acks", metavar="N", help="0, 1 or all (all)")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve(options)
    settings.check_writable()
    if options.num is not None and options.duration is not None:
        raise NotUnderstoodError("--num or --duration, not both")
    if options.size < 0 or any(number is not None and number <= 0 for number in (options.num, options.rate, options.keys)):
        raise NotUnderstoodError("--num, --rate and --keys are more than 0, --size is not below it")
    duration_s = None if options.duration is None else parse_duration_ms(options.duration) / 1_000
    with Connection(settings) as connection:
        check_topic(connection, options.topic)
        load = Load(connection, options)
        load.run(None if duration_s is not None else options.num or RECORDS, duration_s)
    show(Output(options.output), load.summary(), "delivered")
    load.check()
    return DONE


class Load:
    """Owns the producer and the meter."""

    def __init__(self, connection: Connection, options: argparse.Namespace) -> None:
        self._connection = connection
        self._topic = options.topic
        self._rate = options.rate
        self._error: CommandError | None = None
        self._failed = 0
        wished = {"compression.type": options.compression, "acks": options.acks}
        config = {key: value for key, value in wished.items() if value is not None}
        self._producer: Producer = make(Producer, connection.config({"linger.ms": 5, **config}))
        self._values = [os.urandom(options.size) for _ in range(PAYLOADS)]
        self._keys = [None] if options.keys is None else [b"key-%d" % number for number in range(options.keys)]
        self._where: dict[str, Any] = {} if options.partition is None else {"partition": options.partition}
        self._meter = Meter()

    def run(self, count: int | None, duration_s: float | None) -> None:
        """Until so many records are sent, or for that long; then until all are acknowledged. Raises CommandError."""
        sent = 0
        try:
            while (count is None or sent < count) and (duration_s is None or self._meter.elapsed_s() < duration_s):
                turn = TURN if count is None else min(TURN, count - sent)
                if self._rate is not None:
                    turn = min(turn, max(int(self._rate * WAIT_S), 1))
                for number in range(sent, sent + turn):
                    self._send(number)
                sent += turn
                self._producer.poll(0)
                self._look()
                self._keep_to_rate(sent)
        except KeyboardInterrupt:
            pass  # the summary tells what was done until then
        while len(self._producer):
            self._producer.flush(WAIT_S)
            self._look()
        self._meter.end()

    def summary(self) -> dict[str, Any]:
        return {**self._meter.summary(), "failed": self._failed}

    def check(self) -> None:
        """Raises the first error if records were not delivered."""
        if self._error is not None:
            raise type(self._error)(f"{self._failed} records were not delivered: {self._error}")

    def _send(self, number: int) -> None:
        value, key = self._values[number % PAYLOADS], self._keys[number % len(self._keys)]
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._hear, **self._where)
                return
            except BufferError:
                self._producer.poll(WAIT_S)
                self._look()
            except KafkaException as e:
                self._fail(from_kafka(e))
                return

    def _keep_to_rate(self, sent: int) -> None:
        """Serve the producer until the next record is due."""
        while self._rate is not None and (early_s := sent / self._rate - self._meter.elapsed_s()) > 0:
            self._producer.poll(min(early_s, WAIT_S))
            self._look()

    def _look(self) -> None:
        """Raises NoBrokerError if no broker has answered for the time of --timeout, and RefusedError."""
        self._meter.tick()
        self._connection.check_let_in()
        if self._connection.down_for_s() > self._connection.timeout_s:
            raise NoBrokerError(f"no broker answers at {self._connection.settings.address}; {self._meter.records} records were delivered")

    def _hear(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._fail(from_kafka(KafkaException(error)))
            return
        self._connection.is_answered()
        self._meter.add(1, len(message))
        self._meter.latencies.add(message.latency() or 0.0)

    def _fail(self, error: CommandError) -> None:
        self._failed, self._error = self._failed + 1, self._error or error
