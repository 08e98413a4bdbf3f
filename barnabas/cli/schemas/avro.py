"""Avro as its own JSON encoding: a union's value is named by its type, `{"string": "x"}`, as Confluent's console tools have it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

from fastavro import json_reader, json_writer, schemaless_reader, schemaless_writer
from fastavro.schema import SchemaParseException, parse_schema

from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.schemas.codec import NotOfSchemaError, one_line


class AvroCodec:
    """Of one schema; `texts` has those that it refers to before it."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Raises NotUnderstoodError."""
        named: dict[str, Any] = {}
        try:
            for text in texts:
                self._schema = parse_schema(json.loads(text), named_schemas=named)
        except (SchemaParseException, ValueError, KeyError, TypeError) as e:
            raise NotUnderstoodError(f"no Avro schema: {one_line(e)}") from e

    def decode(self, data: bytes) -> bytes:
        stream, text = io.BytesIO(data), io.StringIO()
        try:
            json_writer(text, self._schema, [schemaless_reader(stream, self._schema, None)])
        except Exception as e:  # a stranger's bytes make fastavro raise whatever their reading raises
            raise NotOfSchemaError(f"no Avro of its schema: {one_line(e)}") from e
        if left := len(data) - stream.tell():
            raise NotOfSchemaError(f"no Avro of its schema: {left} bytes are left over")
        return text.getvalue().strip().encode()

    def encode(self, text: bytes) -> bytes:
        data = io.BytesIO()
        try:
            (value,) = json_reader(io.StringIO(text.decode()), self._schema)
            schemaless_writer(data, self._schema, value)
        except Exception as e:  # fastavro's readers of JSON raise what their parts raise
            raise NotOfSchemaError(f"not of the Avro schema: {one_line(e)}") from e
        return data.getvalue()
