"""OpenTelemetry's MetricsData v1, as much of it as Kafka's clients send: numbers, as gauges and as sums.

Histograms and summaries, which no client sends, are skipped, as is every unknown field. At most FIELDS_MAX fields are read, so that
nothing that is pushed holds the loop or takes memory.

A reader of its own, because protobuf is the library that users' other packages most often need in another version, and the broker is
installed beside them. It would also take memory for what is pushed before it says how much there is: 90 MB for 2 MB of empty messages.

Source: opentelemetry/proto/metrics/v1/metrics.proto; Protocol Buffers' encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from protocol.errors import DecodeError

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
VARINT_BYTES_MAX = 10

RESOURCE_METRICS = 1 << 3 | LENGTH_DELIMITED
SCOPE_METRICS, METRICS = 2 << 3 | LENGTH_DELIMITED, 2 << 3 | LENGTH_DELIMITED
NAME, GAUGE, SUM = 1 << 3 | LENGTH_DELIMITED, 5 << 3 | LENGTH_DELIMITED, 7 << 3 | LENGTH_DELIMITED
DATA_POINTS, TEMPORALITY = 1 << 3 | LENGTH_DELIMITED, 2 << 3 | VARINT
AS_DOUBLE, AS_INT, ATTRIBUTES = 4 << 3 | FIXED64, 6 << 3 | FIXED64, 7 << 3 | LENGTH_DELIMITED
KEY, VALUE = 1 << 3 | LENGTH_DELIMITED, 2 << 3 | LENGTH_DELIMITED
STRING_VALUE, BOOL_VALUE, INT_VALUE, DOUBLE_VALUE = 1 << 3 | LENGTH_DELIMITED, 2 << 3 | VARINT, 3 << 3 | VARINT, 4 << 3 | FIXED64
"""Tags: the number of a field and how it is encoded."""

FIELDS_MAX = 20_000
"""Of one push, some 20 ms. A number has about fifteen, so these are 1,300 numbers; a Java client pushes a hundred."""

DELTA = 1
"""AggregationTemporality: the number counts since the last push; otherwise since the client began."""

_DOUBLE = struct.Struct("<d")
_INT64 = struct.Struct("<q")


Field = tuple[int, Any]
"""Tag and value: an int for a varint, otherwise bytes."""


class Point(NamedTuple):
    """One number of one metric. `attributes` tell which, in the order of their names."""

    metric: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_sum: bool
    is_delta: bool


def read_points(data: bytes) -> list[Point]:
    """The numbers in a MetricsData, as many as its first FIELDS_MAX fields have. Raises DecodeError for what is none."""
    reader = _Reader()
    try:
        reader.read(data)
    except _EnoughError:
        pass  # the rest is left out, as is what does not fit beside a client's other numbers
    return reader.points


class _EnoughError(Exception):
    """FIELDS_MAX fields have been read."""


class _Reader:
    """Collects the points of one MetricsData, and counts its fields."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._fields_left = FIELDS_MAX

    def read(self, data: bytes) -> None:
        for resource_metrics in self._messages(data, RESOURCE_METRICS):
            for scope_metrics in self._messages(resource_metrics, SCOPE_METRICS):
                for metric in self._messages(scope_metrics, METRICS):
                    self._read_metric(metric)

    def _read_metric(self, metric: bytes) -> None:
        name = ""
        for tag, value in self._fields(metric):
            if tag == NAME:
                name = _text(value)
            elif tag in (GAUGE, SUM):
                is_sum = tag == SUM
                is_delta = is_sum and (TEMPORALITY, DELTA) in self._fields(value)
                for data_point in self._messages(value, DATA_POINTS):
                    self.points.append(self._point(name, data_point, is_sum=is_sum, is_delta=is_delta))

    def _point(self, name: str, data: bytes, *, is_sum: bool, is_delta: bool) -> Point:
        number = 0.0
        attributes = []
        for tag, value in self._fields(data):
            if tag == AS_DOUBLE:
                (number,) = _DOUBLE.unpack(value)
            elif tag == AS_INT:
                (number,) = _INT64.unpack(value)
            elif tag == ATTRIBUTES:
                attributes.append(self._attribute(value))
        return Point(name, tuple(sorted(attributes)), number, is_sum, is_delta)

    def _attribute(self, data: bytes) -> tuple[str, str]:
        key = text = ""
        for tag, value in self._fields(data):
            if tag == KEY:
                key = _text(value)
            elif tag == VALUE:
                for inner_tag, inner in self._fields(value):
                    text = _any_value(inner_tag, inner, text)
        return key, text

    def _messages(self, data: bytes, wanted: int) -> Iterator[bytes]:
        """The embedded messages of one field."""
        return (value for tag, value in self._fields(data) if tag == wanted)

    def _fields(self, data: bytes) -> Iterator[Field]:
        position, end = 0, len(data)
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise _EnoughError
            tag = data[position]
            if tag < 0x80:
                position += 1
            else:
                tag, position = _varint(data, position)
            kind = tag & 7
            if kind == VARINT:
                number, position = _varint(data, position)
                yield tag, number
                continue
            if kind == LENGTH_DELIMITED:
                size = data[position] if position < end else 0x80
                if size < 0x80:
                    position += 1
                else:
                    size, position = _varint(data, position)
            elif kind == FIXED64:
                size = 8
            elif kind == FIXED32:
                size = 4
            else:
                raise DecodeError(f"the metrics have a field of the unknown wire type {kind}")
            start, position = position, position + size
            if position > end:
                raise DecodeError("a field of the metrics is cut")
            yield tag, data[start:position]


def _any_value(tag: int, value: Any, other: str) -> str:
    """A field of AnyValue as a label's text: a string, a bool, an integer or a double. `other` for what else there may be."""
    if tag == STRING_VALUE:
        return _text(value)
    if tag == BOOL_VALUE:
        return "true" if value else "false"
    if tag == INT_VALUE:
        return str(value - 2**64 if value >= 2**63 else value)
    if tag == DOUBLE_VALUE:
        return str(_DOUBLE.unpack(value)[0])
    return other


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The number and the position behind it."""
    value = 0
    for count in range(VARINT_BYTES_MAX):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & 2**64 - 1, position
    raise DecodeError("a length of the metrics is cut")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
