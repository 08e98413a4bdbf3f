"""What turns bytes into JSON and back, and what it raises."""

from __future__ import annotations

from typing import Protocol


class NotOfSchemaError(Exception):
    """The bytes, or the JSON, are not of the schema. `str()` says why in a line."""


class Codec(Protocol):
    """Both raise NotOfSchemaError, and CommandError where a registry does not answer."""

    def decode(self, data: bytes) -> bytes:
        """JSON in one line."""
        ...

    def encode(self, text: bytes) -> bytes: ...


class SchemaCodec(Codec, Protocol):
    """Of one schema."""

    @property
    def kind(self) -> str:
        """Avro, Protobuf or JSON Schema."""
        ...

    @property
    def name(self) -> str:
        """Of the record or message, with its namespace or package; "" where there is none, or not one alone."""
        ...


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
