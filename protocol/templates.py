"""Response templates: an encoding made once, whose fixed-width fields are filled in per response by a single `struct` call.

The codec stays the only place that knows how a message looks: a template encodes one specimen with a recognisable number in each
field that varies and finds those numbers in the bytes. For one partition of Produce v7 that is 0.5 µs against 3.5 µs for
building and encoding the message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import codec
from .apis import Api
from .uvarint import uvarint

_CODES = {4: "i", 8: "q"}
_RECORDS_LENGTH = struct.Struct(">i")
_THROTTLE_TIME = struct.Struct(">i")
THROTTLE_SPECIMEN = 0x7EF6C8DA  # as a Hole's
JOINED_SIZE_MAX = 16 * 1024
"""Bytes of records in memory that are copied between what is before and after them: that costs less than to queue three pieces."""
RECORDS_SPECIMEN = b"\x7e\xf5\xe7\x09\x1b\x2c\x3d\x4f"  # bytes that stand out in an encoded response, as a Hole's do


class Hole(NamedTuple):
    """A field that varies: `specimen` is the number that the encoded specimen has there, `size` its width in bytes (4 or 8)."""

    specimen: int
    size: int


class Template:
    """A whole frame: `fill(correlation_id, *values)` makes it. `throttle_position` is where its throttle_time_ms is, from its start."""

    __slots__ = ("fill", "throttle_position")

    def __init__(self, fill: Callable[..., bytes], throttle_position: int) -> None:
        self.fill = fill
        self.throttle_position = throttle_position


class RecordsTemplate:
    """A response around one field of records. `fill` takes the frame's size before the correlation id; `fixed_size` is that size
    without the records and their length, which is a uvarint when `is_compact`, else an int32. `tail` follows the records.
    `throttle_position` is as in Template."""

    __slots__ = ("fill", "fixed_size", "is_compact", "tail", "throttle_position")

    def __init__(self, fill: Callable[..., bytes], fixed_size: int, tail: bytes, is_compact: bool, throttle_position: int) -> None:
        self.fill = fill
        self.fixed_size = fixed_size
        self.tail = tail
        self.is_compact = is_compact
        self.throttle_position = throttle_position


class PreparedResponse:
    """A response that needs only its correlation id to be complete."""

    __slots__ = ("_template", "_values")

    _template: Template | RecordsTemplate

    def __init__(self, template: Template, values: tuple[int, ...]) -> None:
        self._template = template
        self._values = values

    def to_chunks(self, correlation_id: int) -> list[Any]:
        """The frame, its size included, as what leaves one after the other."""
        return [self._template.fill(correlation_id, *self._values)]

    def throttled(self, throttle_time_ms: int) -> PreparedResponse:
        """The same response telling the client for how long it is throttled: four bytes differ."""
        return _ThrottledResponse(self, self._template.throttle_position, throttle_time_ms)


class PreparedRecordsResponse(PreparedResponse):
    """One with a field of records, which stay the object they are and leave between the bytes before and after them."""

    __slots__ = ("_records", "_size_bytes")

    _template: RecordsTemplate

    def __init__(self, template: RecordsTemplate, values: tuple[int, ...], records: Any, size_bytes: int) -> None:
        self._template = template
        self._values = values
        self._records = records
        self._size_bytes = size_bytes

    def to_chunks(self, correlation_id: int) -> list[Any]:
        template, records, size = self._template, self._records, self._size_bytes
        length = uvarint(size + 1) if template.is_compact else _RECORDS_LENGTH.pack(size)
        head = template.fill(template.fixed_size + len(length) + size, correlation_id, *self._values) + length
        if not size:
            return [head + template.tail]
        if type(records) is bytes and size <= JOINED_SIZE_MAX:
            return [head + records + template.tail]
        return [head, records, template.tail] if template.tail else [head, records]


class _ThrottledResponse(PreparedResponse):
    __slots__ = ("_position", "_response", "_throttle_time_ms")

    def __init__(self, response: PreparedResponse, position: int, throttle_time_ms: int) -> None:
        self._response = response
        self._position = position
        self._throttle_time_ms = throttle_time_ms

    def to_chunks(self, correlation_id: int) -> list[Any]:
        chunks = self._response.to_chunks(correlation_id)
        head = bytearray(chunks[0])
        _THROTTLE_TIME.pack_into(head, self._position, self._throttle_time_ms)
        chunks[0] = bytes(head)
        return chunks

    def throttled(self, throttle_time_ms: int) -> PreparedResponse:
        return _ThrottledResponse(self._response, self._position, throttle_time_ms)


def compile_template(api: Api, version: int, specimen: Any, holes: Sequence[Hole]) -> Template:
    """The template of `specimen`, which is changed: the values are filled in in the order of `holes`, their order in the encoding.

    Raises ValueError when a specimen number is not found exactly once.
    """
    body, throttle_position = _encode(api, version, specimen)
    layout, constants = _lay_out(api, version, body, holes)
    return Template(_filler(layout, constants, size=layout.size - 4), throttle_position)


def compile_records_template(api: Api, version: int, specimen: Any, holes: Sequence[Hole]) -> RecordsTemplate:
    """The same for a response with one field of records after the last hole, which is RECORDS_SPECIMEN in the specimen, and with
    throttle_time_ms before it."""
    body, throttle_position = _encode(api, version, specimen)
    is_compact = api.response_header_version(version) >= 1
    before, found, tail = body.partition(RECORDS_SPECIMEN)
    if not found:
        raise ValueError(f"{api.name} v{version}: the specimen has no records")
    layout, constants = _lay_out(api, version, before[: -1 if is_compact else -_RECORDS_LENGTH.size], holes)
    assert throttle_position < layout.size, "the throttle time is looked for in the bytes before the records"
    return RecordsTemplate(_filler(layout, constants), layout.size - 4 + len(tail), tail, is_compact, throttle_position)


def _encode(api: Api, version: int, specimen: Any) -> tuple[bytes, int]:
    """The specimen's body with no throttle time, and where in its frame that is."""
    specimen.throttle_time_ms = THROTTLE_SPECIMEN
    needle = _THROTTLE_TIME.pack(THROTTLE_SPECIMEN)
    body = codec.encode(specimen, version)
    if body.count(needle) != 1:
        raise ValueError(f"{api.name} v{version}: the throttle time is not in the specimen once")
    header_size = 8 + api.response_header_version(version)  # the frame's size, the correlation id, an empty tag section from v1 on
    return body.replace(needle, bytes(len(needle))), header_size + body.find(needle)


def _lay_out(api: Api, version: int, body: bytes, holes: Sequence[Hole]) -> tuple[struct.Struct, list[bytes]]:
    """The frame's layout and what is constant in it: before each hole, and after the last one."""
    constants: list[bytes] = []
    codes = [">ii"]
    at = 0
    for hole in holes:
        needle = hole.specimen.to_bytes(hole.size, "big")
        position = body.find(needle, at)
        if position < 0 or body.count(needle) != 1:
            raise ValueError(f"{api.name} v{version}: the number {hole.specimen:#x} is not in the specimen once")
        constants.append(body[at:position])
        codes += [f"{position - at}s", _CODES[hole.size]]
        at = position + hole.size
    if api.response_header_version(version) >= 1:
        constants[0] = b"\x00" + constants[0]  # the header's empty tag section
    codes[1] = f"{len(constants[0])}s"
    codes.append(f"{len(body) - at}s")
    constants.append(body[at:])
    return struct.Struct("".join(codes)), constants


def _filler(layout: struct.Struct, constants: list[bytes], size: int | None = None) -> Callable[..., bytes]:
    """A function without loops: the constants and the values alternate in one call of `pack`. Without `size` it is an argument."""
    names = [f"value{place}" for place in range(len(constants) - 1)]
    pieces = ", ".join(f"constant{place}, {name}" for place, name in enumerate(names))
    parameters = ", ".join([*(["size"] if size is None else []), "correlation_id", *names])
    source = f"lambda {parameters}: pack(size, correlation_id, {pieces}, rest)"
    namespace: dict[str, Any] = {"pack": layout.pack, "size": size, "rest": constants[-1]}
    namespace |= {f"constant{place}": constant for place, constant in enumerate(constants[:-1])}
    fill: Callable[..., bytes] = eval(source, namespace)
    return fill
