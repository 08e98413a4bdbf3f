"""Confluent's wire format: byte 0, a schema's id in four bytes, of Protobuf the way to the message, then the value."""

from __future__ import annotations

import json
import struct
from typing import NamedTuple

from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.schemas.codec import NotOfSchemaError, SchemaCodec
from barnabas.cli.schemas.registry import AVRO, JSON, PROTOBUF, Schema, Schemas
from protocol.errors import DecodeError
from protocol.varint import read_varint

HEADER = struct.Struct(">bI")
MAGIC = 0
CODECS_MAX = 200
"""Codecs that are kept: records may name whatever schemas and ways to messages."""
DEPTH_MAX = 100
"""Of a message in messages; Protobuf's own limit."""


class Decoded(NamedTuple):
    text: bytes
    schema: Schema
    codec: SchemaCodec


class FramedCodec:
    """Decodes each value by the schema that it names; encodes by the newest of `subject`. Several threads may decode."""

    def __init__(self, registry: Schemas, subject: str) -> None:
        self._registry = registry
        self._subject = subject
        self._codecs: dict[tuple[int, tuple[int, ...]], SchemaCodec | NotUnderstoodError] = {}
        self._newest: Schema | None = None

    def decode(self, data: bytes) -> bytes:
        return self.read(data).text

    def read(self, data: bytes) -> Decoded:
        """As `decode`, with the schema."""
        number = schema_id(data)
        if number is None:
            raise NotOfSchemaError(f"it does not begin with byte {MAGIC} and a schema's id")
        schema = self._registry.get(number)
        if schema is None:
            raise NotOfSchemaError(f"the registry has no schema {number}")
        rest = data[HEADER.size :]
        indexes: tuple[int, ...] = ()
        if schema.kind == PROTOBUF:
            indexes, position = _read_indexes(rest)
            rest = rest[position:]
        codec = self._codec(schema, indexes)
        return Decoded(codec.decode(rest), schema, codec)

    def encode(self, text: bytes) -> bytes:
        """Of Protobuf the first message of the schema."""
        if self._newest is None:
            self._newest = self._registry.newest(self._subject)
        schema = self._newest
        head = HEADER.pack(MAGIC, schema.number)
        indexes = (0,) if schema.kind == PROTOBUF else ()
        return head + (b"\0" if schema.kind == PROTOBUF else b"") + self._codec(schema, indexes).encode(text)

    def _codec(self, schema: Schema, indexes: tuple[int, ...]) -> SchemaCodec:
        key = schema.number, indexes
        codec = self._codecs.get(key)
        if codec is None:
            if len(self._codecs) >= CODECS_MAX:
                self._codecs.clear()
            try:
                codec = _make(schema, indexes)
            except NotUnderstoodError as e:
                codec = e  # the next record of it need not find that out
            self._codecs[key] = codec
        if isinstance(codec, NotUnderstoodError):
            raise codec
        return codec


def schema_id(data: bytes) -> int | None:
    """None if the data are not of this format. So are a few others by chance: a long of eight bytes often begins like it."""
    return int.from_bytes(data[1 : HEADER.size], "big") if len(data) >= HEADER.size and data[0] == MAGIC else None


class _JsonCodec:
    """Of JSON Schema, by which nothing is checked: what is in the topic is JSON already."""

    kind = "JSON Schema"

    def __init__(self, schema: Schema) -> None:
        try:
            found = json.loads(schema.shown)
        except (ValueError, RecursionError):
            found = None
        self.name = str(found.get("title") or found.get("$id") or "") if isinstance(found, dict) else ""

    def decode(self, data: bytes) -> bytes:
        return data

    def encode(self, text: bytes) -> bytes:
        return text


def _make(schema: Schema, indexes: tuple[int, ...]) -> SchemaCodec:
    if schema.kind == AVRO:
        from barnabas.cli.schemas.avro import AvroCodec

        return AvroCodec(schema.texts)
    if schema.kind == PROTOBUF:
        from barnabas.cli.schemas.protobuf import from_registry

        return from_registry(schema.texts, indexes)
    if schema.kind == JSON:
        return _JsonCodec(schema)
    raise NotUnderstoodError(f"schema {schema.number} is {schema.kind}, and {AVRO}, {PROTOBUF} and {JSON} are known")


def _read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes and where the message begins. A count of 0 means the first message alone. Raises NotOfSchemaError."""
    try:
        count, position = read_varint(data, 0)
        if count == 0:
            return (0,), position
        if not 0 < count <= DEPTH_MAX:
            raise NotOfSchemaError("the way to its message is no way")
        indexes = []
        for _ in range(count):
            index, position = read_varint(data, position)
            if index < 0:
                raise NotOfSchemaError("the way to its message is no way")
            indexes.append(index)
    except (DecodeError, IndexError) as e:
        raise NotOfSchemaError("the way to its message is cut") from e
    return tuple(indexes), position
