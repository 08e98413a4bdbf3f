"""kafka-console-producer: a record of each line of standard input.

A record that is not delivered ends it with exit code 1; Kafka's logs the error and ends with 0.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError, NotUnderstoodError
from barnabas.cli.kafka_tools.run import add_connection, settings_of, unescaped
from barnabas.cli.produce.lines import delimited
from barnabas.cli.produce.produce import Delivery
from barnabas.cli.record_json import JsonRecord
from config.loading import read_properties

LINE_READER = "org.apache.kafka.tools.LineMessageReader"
LINE_READERS = ("LineMessageReader", "ConsoleProducer$LineMessageReader")
"""As it is called, and as it was before Kafka 4."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--topic", required=True, metavar="TOPIC")
    add("--reader-property", "--property", action="append", default=[], metavar="KEY=VALUE", help="of the lines' reader: parse.key=true …")
    add("--reader-config", metavar="FILE", help="with properties as those of --reader-property, which win")
    add("--line-reader", default=LINE_READER, metavar="CLASS", help="Kafka's own for lines, and no other")
    add("--command-property", "--producer-property", action="append", default=[], metavar="KEY=VALUE", help="of the producer")
    add("--compression-codec", nargs="?", const="gzip", default=None, metavar="CODEC")
    add("--request-required-acks", "--producer-acks", dest="acks", default=None, metavar="ACKS")
    for ignored in (
        "--batch-size",
        "--timeout",
        "--message-send-max-retries",
        "--retry-backoff-ms",
        "--max-block-ms",
        "--request-timeout-ms",
        "--metadata-expiry-ms",
        "--max-memory-bytes",
        "--max-partition-memory-bytes",
        "--socket-buffer-size",
    ):
        add(ignored, help="understood, and without effect: librdkafka's defaults count")
    add("--sync", action="store_true", help="understood: each record is waited for at the end")
    add_connection(parser, "--producer.config")


def run(options: argparse.Namespace) -> int:
    if options.line_reader.rpartition(".")[2] not in LINE_READERS:
        raise CommandError(f"there is no reader {options.line_reader} here; there is {LINE_READER}")
    of_file = {} if options.reader_config is None else read_properties(Path(options.reader_config))
    reader = LineReader.of([*(f"{key}={value}" for key, value in of_file.items()), *options.reader_property])
    delivery_options = argparse.Namespace(topic=options.topic, partition=None, compression=options.compression_codec, acks=options.acks)
    with Connection(settings_of(options, options.command_property)) as connection:
        delivery = Delivery(connection, delivery_options)
        with delivery:
            for line in delimited(b"\n")(sys.stdin.buffer):
                delivery.send(reader, line)
    delivery.check()
    return DONE


@dataclass(frozen=True)
class LineReader:
    """Kafka's LineMessageReader: headers, key and value of a line, each before its separator."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None

    @classmethod
    def of(cls, words: list[str]) -> LineReader:
        """Raises NotUnderstoodError for a property that it does not have."""
        given = {}
        for word in words:
            key, _, value = word.partition("=")
            name = key.replace(".", "_")
            if name not in cls.__dataclass_fields__:
                raise NotUnderstoodError(f"--reader-property {key} is not known")
            is_flag = name in ("parse_key", "parse_headers", "ignore_error")
            given[name] = value.strip().lower() == "true" if is_flag else unescaped(value)
        return cls(**given)  # type: ignore[arg-type]

    def parse(self, line: bytes) -> JsonRecord:
        """Raises NotUnderstoodError for a line without the separator."""
        rest = line.removesuffix(b"\r")
        headers: list[tuple[str, str | bytes | None]] = []
        if self.parse_headers:
            text, rest = self._split(rest, self.headers_delimiter, "headers")
            for pair in text.split(self.headers_separator) if text not in (b"", self.null_marker) else ():
                name, value = self._split(pair, self.headers_key_separator, "header's key")
                headers.append((name.decode(), self._or_null(value)))
        key = None
        if self.parse_key:
            found, value = (
                self._split(rest, self.key_separator, "key") if self.key_separator in rest or not self.ignore_error else (None, rest)
            )
            key, rest = None if found is None else self._or_null(found), value
        return JsonRecord(key, self._or_null(rest), headers, None, None)

    def _or_null(self, data: bytes) -> bytes | None:
        return None if data == self.null_marker else data

    def _split(self, data: bytes, separator: bytes, what: str) -> tuple[bytes, bytes]:
        before, found, after = data.partition(separator)
        if not found:
            raise NotUnderstoodError(f"No {what} separator found in a line")
        return before, after
