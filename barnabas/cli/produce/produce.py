"""Write records to a topic: a line is a record, from files, from standard input or made of a template."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from confluent_kafka import KafkaError, KafkaException, Producer

from barnabas.cli import arguments
from barnabas.cli.connection import Connection, from_kafka, make
from barnabas.cli.errors import DONE, CommandError, NoBrokerError, NotUnderstoodError, RefusedError
from barnabas.cli.produce.lines import LineParser, Reading
from barnabas.cli.produce.template import template_lines
from barnabas.cli.record_json import JsonRecord
from barnabas.cli.schemas import options as schemas
from barnabas.cli.schemas.codec import NotOfSchemaError
from barnabas.cli.settings import resolve
from barnabas.cli.topic_facts import check_topic

FULL_WAIT_S = 0.5
ANY_PARTITION = -1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topic", metavar="TOPIC")
    add("files", nargs="*", metavar="FILE", help="(standard input)")
    add("-k", "--key", metavar="KEY", help="of all records")
    add("-K", "--key-delimiter", metavar="SEP", help="what is between key and value in a line, such as : or \\t")
    add("-D", "--delimiter", metavar="SEP", help="what is between records (a line's end)")
    add("-f", "--format", metavar="FORMAT", help="of a record, as `consume -f` writes it, such as '%%k:%%v\\n': docs/cli.md")
    add("--template", metavar="TEXT", help="lines that are made, not read, such as '{\"id\": {{i}}}': docs/cli.md")
    add("-n", "--num", type=int, metavar="N", help="end after N records")
    add("--rate", type=float, metavar="N", help="records a second (as many as it takes)")
    add("-H", "--header", action="append", default=[], metavar="NAME=VALUE", help="of all records")
    add("-Z", "--null", action="store_true", help="an empty value, or key, is null")
    add("-p", "--partition", type=int, metavar="N", help="(by the key's hash)")
    add("-z", "--compression", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd (none)")
    add("--acks", metavar="N", help="0, 1 or all (all)")
    add("--json", action="store_true", help="lines as `consume --output json` writes them: key, value, headers, partition, timestamp")
    add("--allow-auto-topic-creation", action="store_true", help="let the broker make the topic if it is not there")
    schemas.add_arguments(parser)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve(options)
    settings.check_writable()
    reading = Reading.of(options)
    lines = _input(options, reading)
    with Connection(settings) as connection:
        if not options.allow_auto_topic_creation:
            check_topic(connection, options.topic)
        delivery = Delivery(connection, options, schemas.make_codecs(options, options.topic, settings.schemas))
        with delivery:
            try:
                for line in lines:
                    delivery.send(reading, line)
                    if options.rate is not None:
                        delivery.keep_to_rate(options.rate)
            except KeyboardInterrupt:
                if options.template is None or options.num is not None:
                    raise
                # else how a person ends what has no end
    delivery.check()
    if sys.stderr.isatty():
        print(f"{delivery.sent} records delivered", file=sys.stderr)
    return DONE


def _input(options: argparse.Namespace, reading: Reading) -> Iterator[bytes]:
    """The lines, from where the options say. Raises NotUnderstoodError."""
    if (options.num is not None and options.num < 1) or (options.rate is not None and not options.rate > 0):
        raise NotUnderstoodError("--num is 1 or more, and --rate more than 0")
    if options.template is not None and options.files:
        raise NotUnderstoodError("--template makes the lines: name no files")
    lines = _lines(options.files, reading.split) if options.template is None else template_lines(options.template)
    return itertools.islice(lines, options.num)


class Delivery:
    """Owns the producer; leaving it as a context waits for what is under way. `sent` counts what the producer took."""

    def __init__(self, connection: Connection, options: argparse.Namespace, codecs: schemas.Codecs | None = None) -> None:
        self.sent = 0
        self._began_s = time.monotonic()
        self._failed = 0
        self._error: CommandError | None = None
        self._topic = options.topic
        self._partition = options.partition
        self._connection = connection
        self._codecs = codecs
        wished = {"compression.type": options.compression, "acks": options.acks}
        config: dict[str, Any] = {key: value for key, value in wished.items() if value is not None}
        if not {"acks", "enable.idempotence"} & {*config, *connection.settings.librdkafka}:
            config["enable.idempotence"] = True
        # Only failures are reported: a call for each record would cost more than to send it.
        self._producer: Producer = make(
            Producer, connection.config({**config, "delivery.report.only.error": True, "on_delivery": self._hear})
        )

    def __enter__(self) -> Delivery:
        return self

    def __exit__(self, kind: object, *of_error: object) -> None:
        """Also after an interruption and after a line that is not understood: what was taken is delivered."""
        while len(self._producer):
            self._wait()

    def send(self, reading: LineParser, line: bytes) -> None:
        """Raises CommandError for a line that is not understood, or once a record is lost."""
        try:
            record = self._encoded(reading.parse(line))
        except (NotUnderstoodError, NotOfSchemaError) as e:
            raise RefusedError(f"record {self.sent + 1}: {e}{self._so_far()}") from e
        self._produce(record)
        self._producer.poll(0)
        self.check()

    def keep_to_rate(self, records_per_s: float) -> None:
        """Serve the producer until the next record is due, counted from the first. Raises CommandError."""
        while (early_s := self.sent / records_per_s - (time.monotonic() - self._began_s)) > 0:
            self._producer.poll(min(early_s, FULL_WAIT_S))
            self.check()
            if not len(self._producer):
                self._connection.is_answered()
            self._look()

    def _encoded(self, record: JsonRecord) -> JsonRecord:
        """With key and value of their schemas. Raises NotOfSchemaError."""
        if self._codecs is None:
            return record
        key, value = self._codecs
        return record._replace(
            key=record.key if key is None or record.key is None else key.encode(record.key),
            value=record.value if value is None or record.value is None else value.encode(record.value),
        )

    def check(self) -> None:
        """Raises RefusedError if a record is known not to be delivered."""
        if self._error is not None:
            self._producer.flush(self._connection.timeout_s)
            raise type(self._error)(f"{self._failed} records were not delivered: {self._error}{self._so_far()}")

    def _so_far(self) -> str:
        return f" ({self.sent - self._failed} were delivered)"

    def _produce(self, record: JsonRecord) -> None:
        partition = record.partition if self._partition is None else self._partition
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    partition=ANY_PARTITION if partition is None else partition,
                    timestamp=record.timestamp_ms or 0,
                    headers=record.headers,
                )
            except BufferError:
                self._wait()
            except KafkaException as e:
                self.sent, self._failed, self._error = self.sent + 1, self._failed + 1, self._error or from_kafka(e)
                return
            else:
                self.sent += 1
                return

    def _wait(self) -> None:
        """For records to be delivered. Raises NoBrokerError if no broker has answered for the time of --timeout, and RefusedError."""
        before = len(self._producer)
        after = self._producer.flush(FULL_WAIT_S)
        if after < before:
            self._connection.is_answered()
        self._look()

    def _look(self) -> None:
        """Raises NoBrokerError and RefusedError, as `_wait` does."""
        self._connection.check_let_in()
        if self._connection.down_for_s() > self._connection.timeout_s:
            raise NoBrokerError(
                f"no broker answers at {self._connection.settings.address}; {len(self._producer)} of {self.sent} records are not delivered"
            )

    def _hear(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self._failed, self._error = self._failed + 1, self._error or from_kafka(KafkaException(error))


def _lines(files: Iterable[str], split: Callable[[BinaryIO], Iterator[bytes]]) -> Iterator[bytes]:
    """The records of the files one after another; `-` and no file mean standard input."""
    for name in files or ("-",):
        if name == "-":
            yield from split(sys.stdin.buffer)
        else:
            with open(name, "rb") as file:
                yield from split(file)
