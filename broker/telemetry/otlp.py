"""OpenTelemetry's MetricsData v1, as much of it as Kafka's clients send: numbers, as gauges and as sums.

A reader of Protocol Buffers of its own: the library would cost more memory than a broker has. Histograms and summaries, which no client
sends, are skipped, as is every unknown field. Yields now and then.

Source: opentelemetry/proto/metrics/v1/metrics.proto; Protocol Buffers' encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from protocol.errors import DecodeError

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
VARINT_BYTES_MAX = 10

POINTS_PER_PIECE = 20
"""Read between two yields, 15 µs each."""

POINTS_MAX = 10_000
"""Of one push: a client pushes about a hundred. Many more would take milliseconds to be freed."""

DELTA = 1
"""AggregationTemporality: the number counts since the last push; otherwise since the client began."""

_DOUBLE = struct.Struct("<d")
_INT64 = struct.Struct("<q")
_UINT64 = struct.Struct("<Q")

Field = tuple[int, int, Any]
"""Number, wire type and value: an int, or the bytes as a view."""


class Point(NamedTuple):
    """One number of one metric. `attributes` tell which, in the order of their names."""

    metric: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_sum: bool
    is_delta: bool


def read_points(data: memoryview) -> Generator[None, None, list[Point]]:
    """The numbers in a MetricsData, the first POINTS_MAX of them. Raises DecodeError for what is none."""
    points: list[Point] = []
    for count, point in enumerate(_points(data), 1):
        if point is not None:
            points.append(point)
            if len(points) == POINTS_MAX:
                break
        if count % POINTS_PER_PIECE == 0:
            yield
    return points


def _points(data: memoryview) -> Iterator[Point | None]:
    """None where a metric has no numbers, so that the reader of many of those yields too."""
    for resource_metrics in _messages(data, 1):
        for scope_metrics in _messages(resource_metrics, 2):
            for metric in _messages(scope_metrics, 2):
                yield None
                yield from _points_of(metric)


def _points_of(metric: memoryview) -> Iterator[Point]:
    name = ""
    for number, kind, value in _fields(metric):
        if kind != LENGTH_DELIMITED:
            continue
        if number == 1:
            name = _text(value)
        elif number in (5, 7):  # Gauge, Sum
            is_sum = number == 7
            is_delta = is_sum and any(field[:2] == (2, VARINT) and field[2] == DELTA for field in _fields(value))
            for data_point in _messages(value, 1):
                yield _point(name, data_point, is_sum=is_sum, is_delta=is_delta)


def _point(name: str, data: memoryview, *, is_sum: bool, is_delta: bool) -> Point:
    value = 0.0
    attributes = []
    for number, kind, field in _fields(data):
        if number == 4 and kind == FIXED64:
            (value,) = _DOUBLE.unpack(_UINT64.pack(field))
        elif number == 6 and kind == FIXED64:
            (value,) = _INT64.unpack(_UINT64.pack(field))
        elif number == 7 and kind == LENGTH_DELIMITED:
            attributes.append(_attribute(field))
    return Point(name, tuple(sorted(attributes)), value, is_sum, is_delta)


def _attribute(data: memoryview) -> tuple[str, str]:
    key = value = ""
    for number, kind, field in _fields(data):
        if number == 1 and kind == LENGTH_DELIMITED:
            key = _text(field)
        elif number == 2 and kind == LENGTH_DELIMITED:
            for kind_of_value, wire_type, inner in _fields(field):
                if kind_of_value == 1 and wire_type == LENGTH_DELIMITED:
                    value = _text(inner)
                elif kind_of_value == 2 and wire_type == VARINT:
                    value = "true" if inner else "false"
                elif kind_of_value == 3 and wire_type == VARINT:
                    value = str(inner - 2**64 if inner >= 2**63 else inner)
                elif kind_of_value == 4 and wire_type == FIXED64:
                    value = str(_DOUBLE.unpack(_UINT64.pack(inner))[0])
    return key, value


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    """The embedded messages of one field."""
    for number, kind, value in _fields(data):
        if number == wanted and kind == LENGTH_DELIMITED:
            yield value


def _fields(data: memoryview) -> Iterator[Field]:
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value: Any
            value, position = _varint(data, position)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
            if position + size > end:
                raise DecodeError("a number of the metrics is cut")
            value = int.from_bytes(data[position : position + size], "little")
            position += size
        elif kind == LENGTH_DELIMITED:
            size, position = _varint(data, position)
            if position + size > end:
                raise DecodeError("a message of the metrics is cut")
            value = data[position : position + size]
            position += size
        else:
            raise DecodeError(f"the metrics have a field of the unknown wire type {kind}")
        yield number, kind, value


def _varint(data: memoryview, position: int) -> tuple[int, int]:
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


def _text(data: memoryview) -> str:
    return bytes(data).decode("utf-8", "replace")
