"""Java's deserializers by their class names, as kafka-console-consumer prints what they read.

Source: org.apache.kafka.common.serialization, and toString of what they return.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from collections.abc import Callable

from barnabas.cli.errors import CommandError
from barnabas.cli.kafka_tools.config_quotas import java_double

PACKAGE = "org.apache.kafka.common.serialization."
FLOAT_DIGITS_MAX = 9
"""With so many every float of 32 bits is told from the others."""

Deserialize = Callable[[bytes], bytes]
"""The bytes of a record to what is printed. Raises ValueError."""


def deserializer_of(name: str) -> Deserialize:
    """By a class's name. Raises CommandError for one that is not Kafka's own, or prints nothing that can be read."""
    short = name.strip().removeprefix(PACKAGE)
    if short not in KNOWN:
        raise CommandError(f"there is no {name} here; there are {', '.join(f'{PACKAGE}{each}' for each in KNOWN)}")
    return KNOWN[short]


def _string(data: bytes) -> bytes:
    return data.decode(errors="replace").encode()


def _number(format_: str, name: str) -> Deserialize:
    size = struct.calcsize(format_)

    def read(data: bytes) -> bytes:
        if len(data) != size:
            raise ValueError(f"Size of data received by {name}Deserializer is not {size}")
        (value,) = struct.unpack(format_, data)
        if isinstance(value, int):
            return str(value).encode()
        return _java_number(value if size == struct.calcsize(">d") else _shortest(value)).encode()

    return read


def _shortest(value: float) -> float:
    """The number with the fewest digits whose float of 32 bits this is."""
    for digits in range(1, FLOAT_DIGITS_MAX):
        short = float(f"{value:.{digits}g}")
        with contextlib.suppress(OverflowError):  # rounded up beyond the largest one
            if struct.pack(">f", short) == struct.pack(">f", value):
                return short
    return value


def _java_number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return java_double(value)


def _boolean(data: bytes) -> bytes:
    if len(data) != 1:
        raise ValueError("Size of data received by BooleanDeserializer is not 1")
    if data[0] > 1:
        raise ValueError(f"Unexpected byte received by BooleanDeserializer: {struct.unpack('b', data)[0]}")
    return b"true" if data[0] else b"false"


def _uuid(data: bytes) -> bytes:
    try:
        return str(uuid.UUID(data.decode())).encode()
    except ValueError as e:
        raise ValueError("Error parsing data into UUID") from e


KNOWN: dict[str, Deserialize] = {
    "StringDeserializer": _string,
    "LongDeserializer": _number(">q", "Long"),
    "IntegerDeserializer": _number(">i", "Integer"),
    "ShortDeserializer": _number(">h", "Short"),
    "DoubleDeserializer": _number(">d", "Double"),
    "FloatDeserializer": _number(">f", "Float"),
    "BooleanDeserializer": _boolean,
    "UUIDDeserializer": _uuid,
}
