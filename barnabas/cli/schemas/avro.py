"""Avro as its own JSON encoding: a union's value is named by its type, `{"string": "x"}`, as Confluent's console tools have it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastavro import json_reader, schemaless_writer
from fastavro.schema import parse_schema

from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.schemas.avro_json import AvroWalk
from barnabas.cli.schemas.codec import NotOfSchemaError, one_line


class AvroCodec:
    """Of one schema; `texts` has those that it refers to before it."""

    kind = "Avro"

    def __init__(self, texts: Sequence[str]) -> None:
        """Raises NotUnderstoodError."""
        named: dict[str, Any] = {}
        try:
            for text in texts:
                self._schema = parse_schema(json.loads(text), named_schemas=named)
        except Exception as e:  # a stranger's schema makes fastavro raise whatever its reading raises
            raise NotUnderstoodError(f"no Avro schema: {one_line(e)}") from e
        self.name = str(self._schema.get("name", "")) if isinstance(self._schema, dict) else ""
        shape = _Shape(named)
        shape.look(self._schema, ())
        if shape.has_endless_array:
            raise NotUnderstoodError("no Avro schema: an array of what takes no bytes, of which a few bytes can name any number")
        self._walk = AvroWalk(self._schema, named)

    def decode(self, data: bytes) -> bytes:
        stream = io.BytesIO(data)
        try:
            # Not in ASCII: a person reads it, and a search looks into it.
            decoded = json.dumps(self._walk.read(stream, len(data)), ensure_ascii=False).encode()
        except Exception as e:  # a stranger's bytes raise whatever their reading raises
            raise NotOfSchemaError(f"no Avro of its schema: {one_line(e)}") from e
        if left := len(data) - stream.tell():
            raise NotOfSchemaError(f"no Avro of its schema: {left} bytes are left over")
        return decoded

    def encode(self, text: bytes) -> bytes:
        data = io.BytesIO()
        try:
            (value,) = json_reader(io.StringIO(text.decode()), self._schema)
            schemaless_writer(data, self._schema, value)
        except Exception as e:  # fastavro's readers of JSON raise what their parts raise
            raise NotOfSchemaError(f"not of the Avro schema: {one_line(e)}") from e
        return data.getvalue()


class _Shape:
    """What a schema lets a few bytes do. `named` are the definitions of its names."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.has_endless_array = False
        self._named = named
        self._looked: set[str] = set()
        self._nothing: dict[str, bool] = {}

    def look(self, schema: Any, inside: tuple[str, ...]) -> None:
        """`inside` are the names of what this is a part of."""
        if isinstance(schema, list):
            for each in schema:
                self.look(each, inside)
            return
        if isinstance(schema, str):
            if schema in self._named and schema not in self._looked and schema not in inside:
                self.look(self._named[schema], inside)
            return
        kind, name = schema["type"], schema.get("name", "")
        if isinstance(kind, (list, dict)):
            self.look(kind, inside)
        elif kind == "array":
            self.has_endless_array = self.has_endless_array or self._takes_nothing(schema["items"], ())
            self.look(schema["items"], inside)
        elif kind == "map":
            self.look(schema["values"], inside)
        elif kind in ("record", "error"):
            for each in schema["fields"]:
                self.look(each["type"], (*inside, name))
            self._looked.add(name)
        elif kind not in ("enum", "fixed"):
            self.look(kind, inside)

    def _takes_nothing(self, schema: Any, inside: tuple[str, ...]) -> bool:
        """Whether its values have no bytes: a union's have its branch, an array's and a map's a count."""
        if isinstance(schema, list):
            return False
        if isinstance(schema, str):
            if schema not in self._named or schema in inside:
                return schema == "null"
            if schema not in self._nothing:
                self._nothing[schema] = self._takes_nothing(self._named[schema], inside)
            return self._nothing[schema]
        kind = schema["type"]
        if kind == "fixed":
            return bool(schema["size"] == 0)
        if kind in ("record", "error"):
            return all(self._takes_nothing(each["type"], (*inside, schema.get("name", ""))) for each in schema["fields"])
        return kind not in ("array", "map", "enum") and self._takes_nothing(kind, inside)
