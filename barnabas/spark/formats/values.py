"""What decodes one value, and what it raises."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa

from ..errors import BarnabasError

MAGIC = 0
HEADER_SIZE = 5
"""Of Confluent's wire format: the magic byte, and a schema's id in four bytes."""


class UndecodableError(BarnabasError):
    """The value isn't of its format. The message is the dead letter's reason."""


class SchemaError(BarnabasError):
    """A schema isn't one, or has no type in Spark."""


class ValueDecoder(Protocol):
    """Is pickled for the tasks."""

    @property
    def type(self) -> pa.DataType: ...

    def decode(self, value: bytes) -> Any:
        """What `pa.array` takes for the type. Raises UndecodableError."""
        ...


def split_header(value: bytes) -> tuple[int, bytes]:
    """The schema's id and what follows it. Raises UndecodableError."""
    if len(value) < HEADER_SIZE:
        raise UndecodableError(f"it has {len(value)} bytes, and a registry's format begins with {HEADER_SIZE}")
    if value[0] != MAGIC:
        raise UndecodableError(f"it begins with byte {value[0]}, and a registry's format with {MAGIC}")
    return int.from_bytes(value[1:HEADER_SIZE], "big"), value[HEADER_SIZE:]
