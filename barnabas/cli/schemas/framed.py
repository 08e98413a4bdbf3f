"""Confluent's wire format: byte 0, a schema's id in four bytes, of Protobuf the way to the message, then the value."""

from __future__ import annotations

import struct

from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.schemas.codec import Codec, NotOfSchemaError
from barnabas.cli.schemas.registry import AVRO, JSON, PROTOBUF, Registry, Schema
from protocol.errors import DecodeError
from protocol.records import read_varint

HEADER = struct.Struct(">bI")
MAGIC = 0


class FramedCodec:
    """Decodes each value by the schema that it names; encodes by the newest of `subject`."""

    def __init__(self, registry: Registry, subject: str) -> None:
        self._registry = registry
        self._subject = subject
        self._codecs: dict[tuple[int, tuple[int, ...]], Codec] = {}
        self._newest: Schema | None = None

    def decode(self, data: bytes) -> bytes:
        if len(data) < HEADER.size or data[0] != MAGIC:
            raise NotOfSchemaError(f"it does not begin with byte {MAGIC} and a schema's id")
        _, number = HEADER.unpack_from(data)
        schema = self._registry.get(number)
        if schema is None:
            raise NotOfSchemaError(f"the registry has no schema {number}")
        rest = data[HEADER.size :]
        indexes: tuple[int, ...] = ()
        if schema.kind == PROTOBUF:
            indexes, position = _read_indexes(rest)
            rest = rest[position:]
        return rest if schema.kind == JSON else self._codec(schema, indexes).decode(rest)

    def encode(self, text: bytes) -> bytes:
        """Of Protobuf the first message of the schema."""
        if self._newest is None:
            self._newest = self._registry.newest(self._subject)
        schema = self._newest
        head = HEADER.pack(MAGIC, schema.number)
        if schema.kind == JSON:
            return head + text
        indexes = (0,) if schema.kind == PROTOBUF else ()
        return head + (b"\0" if schema.kind == PROTOBUF else b"") + self._codec(schema, indexes).encode(text)

    def _codec(self, schema: Schema, indexes: tuple[int, ...]) -> Codec:
        key = schema.number, indexes
        if key not in self._codecs:
            self._codecs[key] = _make(schema, indexes)
        return self._codecs[key]


def _make(schema: Schema, indexes: tuple[int, ...]) -> Codec:
    if schema.kind == AVRO:
        from barnabas.cli.schemas.avro import AvroCodec

        return AvroCodec(schema.texts)
    if schema.kind == PROTOBUF:
        from barnabas.cli.schemas.protobuf import from_registry

        return from_registry(schema.texts, indexes)
    raise NotUnderstoodError(f"schema {schema.number} is {schema.kind}, and {AVRO}, {PROTOBUF} and {JSON} are known")


def _read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes and where the message begins. A count of 0 means the first message alone. Raises NotOfSchemaError."""
    try:
        count, position = read_varint(data, 0)
        if count == 0:
            return (0,), position
        indexes = []
        for _ in range(count):
            index, position = read_varint(data, position)
            indexes.append(index)
    except (DecodeError, IndexError) as e:
        raise NotOfSchemaError("the way to its message is cut") from e
    return tuple(indexes), position
