"""Lines of input, and what records they are."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.produce.line_format import LineFormat, record_of
from barnabas.cli.produce.sized_format import SizedFormat, has_sizes
from barnabas.cli.record_json import JsonRecord, from_line

READ_BYTES = 1 << 16
RECORD_BYTES_MAX = 1 << 30
"""Of input without a delimiter: librdkafka takes no larger message."""


class LineParser(Protocol):
    """Makes records of lines."""

    def parse(self, line: bytes) -> JsonRecord:
        """Raises NotUnderstoodError."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a line is read, by the command's options."""

    is_json: bool = False
    key: bytes | None = None
    key_delimiter: bytes | None = None
    delimiter: bytes = b"\n"
    empty_is_null: bool = False
    headers: list[tuple[str, str | bytes | None]] = field(default_factory=list)
    line_format: LineFormat | None = None
    sized_format: SizedFormat | None = None

    @classmethod
    def of(cls, options: argparse.Namespace) -> Reading:
        """Raises NotUnderstoodError."""
        if options.json and (options.key is not None or options.key_delimiter is not None):
            raise NotUnderstoodError("with --json the lines have the keys: leave out -k and -K")
        if options.key is not None and options.key_delimiter is not None:
            raise NotUnderstoodError("-k gives all records one key, and -K each its own: leave out one of them")
        delimiter = None if options.delimiter is None else _delimiter(options.delimiter)
        if options.format is not None and (options.json or options.key is not None or options.key_delimiter is not None):
            raise NotUnderstoodError("-f says what is in a line: leave out --json, -k and -K")
        is_sized = options.format is not None and has_sizes(options.format)
        sized_format = SizedFormat(options.format, delimiter) if is_sized else None
        line_format = None if options.format is None or is_sized else LineFormat.of(options.format)
        if line_format is not None:
            if delimiter is not None and line_format.delimiter is not None:
                raise NotUnderstoodError(f"-f ends a record by {options.format!r}'s end: leave it out there, or -D")
            delimiter = delimiter or line_format.delimiter
        return cls(
            is_json=options.json,
            key=None if options.key is None else options.key.encode(),
            key_delimiter=None if options.key_delimiter is None else _delimiter(options.key_delimiter),
            delimiter=delimiter or b"\n",
            empty_is_null=options.null,
            headers=[_header(text) for text in options.header],
            line_format=line_format,
            sized_format=sized_format,
        )

    def split(self, stream: BinaryIO) -> Iterator[bytes]:
        """The records of a stream, each as `parse` takes it. Raises CommandError."""
        return delimited(self.delimiter)(stream) if self.sized_format is None else self.sized_format.split(stream)

    def parse(self, line: bytes) -> JsonRecord:
        """Raises NotUnderstoodError."""
        if self.is_json:
            record = from_line(line)
            return record._replace(headers=[*record.headers, *self.headers]) if self.headers else record
        if self.sized_format is not None or self.line_format is not None:
            if self.sized_format is not None:
                record = self.sized_format.parse(line, self.headers)
            else:
                assert self.line_format is not None
                record = record_of(self.line_format.parse(line), self.headers)
            if self.empty_is_null:
                record = record._replace(key=record.key or None, value=record.value or None)
            return record
        key: bytes | None = self.key
        if self.key_delimiter is not None:
            before, found, after = line.partition(self.key_delimiter)
            if found:  # as in kcat, a line without it is a value without a key
                key, line = self._unless_empty(before), after
        return JsonRecord(key, self._unless_empty(line), self.headers, None, None)

    def _unless_empty(self, data: bytes) -> bytes | None:
        return None if self.empty_is_null and not data else data


def delimited(delimiter: bytes) -> Callable[[BinaryIO], Iterator[bytes]]:
    """What splits a stream into records, as soon as each is there; the last needs no delimiter."""

    def lines(stream: BinaryIO) -> Iterator[bytes]:
        for line in stream:
            yield line.removesuffix(b"\n")

    def parts(stream: BinaryIO) -> Iterator[bytes]:
        rest = b""
        while data := stream.read(READ_BYTES):
            *whole, rest = (rest + data).split(delimiter)
            yield from whole
            if len(rest) > RECORD_BYTES_MAX:
                raise NotUnderstoodError(f"no delimiter in {RECORD_BYTES_MAX} bytes")
        if rest:
            yield rest

    return lines if delimiter == b"\n" else parts


def _delimiter(text: str) -> bytes:
    """With escapes such as \\t and \\x00."""
    try:
        delimiter = text.encode().decode("unicode_escape").encode("latin-1") if "\\" in text else text.encode()
    except ValueError as e:
        raise NotUnderstoodError(f"{text!r} is no delimiter: {e}") from e
    if not delimiter:
        raise NotUnderstoodError("a delimiter cannot be empty")
    return delimiter


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    return name, value.encode() if equals else None
