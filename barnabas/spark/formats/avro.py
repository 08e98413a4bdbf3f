"""Avro values: all by one schema, or each by that of the id that it begins with (Confluent's wire format)."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader
from fastavro.schema import SchemaParseException, parse_schema

from .avro_types import Converted, converted
from .registry import Schemas, SchemaText
from .values import SchemaError, UndecodableError, split_header


class Parsed:
    """A schema as fastavro takes it, and its named types."""

    def __init__(self, text: SchemaText) -> None:
        """Raises SchemaError."""
        self.named: dict[str, Any] = {}
        try:
            for reference in text.references:
                parse_schema(json.loads(reference), named_schemas=self.named)
            self.schema = parse_schema(json.loads(text.schema), named_schemas=self.named)
        except (SchemaParseException, ValueError, KeyError, TypeError) as e:
            raise SchemaError(f"no Avro schema: {type(e).__name__}: {e}") from e

    def converted(self) -> Converted:
        return converted(self.schema, self.named)


class AvroDecoder:
    """`writers` is None if `reader` has written all values."""

    def __init__(self, reader: SchemaText, writers: Schemas | None) -> None:
        """Raises SchemaError."""
        self._reader_text = reader
        self._writers = writers
        self._parse()

    def _parse(self) -> None:
        self._reader = Parsed(self._reader_text)
        self.type, self._convert = self._reader.converted()
        self._parsed: dict[int, Parsed | str] = {}  # by id; a text says why there is none

    def __getstate__(self) -> dict[str, Any]:
        return {"reader": self._reader_text, "writers": self._writers}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._reader_text, self._writers = state["reader"], state["writers"]
        self._parse()

    type: pa.DataType

    def decode(self, value: bytes) -> Any:
        if self._writers is None:
            return self._read(value, self._reader)
        number, datum = split_header(value)
        writer = self._parsed.get(number)
        if writer is None:
            writer = self._parsed[number] = self._load(number)
        if isinstance(writer, str):
            raise UndecodableError(writer)
        return self._read(datum, writer)

    def _load(self, number: int) -> Parsed | str:
        assert self._writers is not None
        try:
            text = self._writers.find(number)
            return f"its schema {number} is unknown" if text is None else Parsed(text)
        except SchemaError as e:
            return f"its schema {number} cannot be used: {e}"

    def _read(self, datum: bytes, writer: Parsed) -> Any:
        stream = io.BytesIO(datum)
        try:
            value = schemaless_reader(stream, writer.schema, None if writer is self._reader else self._reader.schema)
        except Exception as e:  # a stranger's bytes make fastavro raise whatever their reading raises
            raise UndecodableError(f"not Avro of its schema: {type(e).__name__}{f': {e}' if str(e) else ''}") from e
        if left := len(datum) - stream.tell():
            raise UndecodableError(f"not Avro of its schema: {left} bytes are left over")
        return value if self._convert is None else self._convert(value)
