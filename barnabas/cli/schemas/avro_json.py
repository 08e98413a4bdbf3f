"""Avro's binary encoding as its JSON encoding, by a walk over the bytes (Avro's specification, "Data Serialization and Deserialization").

fastavro's own JSON writer does not get past the first level of a schema that contains itself, guesses a union's branch from the value, and
rounds a decimal to its precision. Here the branch is the one that the bytes name, and what has a logical type is as it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from fastavro.io.binary_decoder import BinaryDecoder

RECORDS_MIN, RECORDS_PER_BYTE = 10_000, 10
"""Records that a value may have. Those of nulls take no bytes, and thirty definitions, each of two of the one before, make a billion."""


class _Data(BinaryDecoder):
    """The bytes of one value, and how many records may come yet."""

    def __init__(self, stream: BinaryIO, size_bytes: int) -> None:
        super().__init__(stream)  # type: ignore[no-untyped-call]
        self._records_left = RECORDS_MIN + RECORDS_PER_BYTE * size_bytes

    def begin_record(self) -> None:
        self._records_left -= 1
        if self._records_left < 0:
            raise ValueError("more records than its bytes can be for")


class AvroWalk:
    """Of one schema that fastavro has parsed; `named` are the definitions of its names."""

    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        self._schema = schema
        self._named = named

    def read(self, stream: BinaryIO, size_bytes: int) -> Any:
        """The next value, of at most that size, as json.dumps takes it. Bytes that are not of the schema raise EOFError, ValueError,
        RecursionError and others."""
        return self._value(self._schema, _Data(stream, size_bytes))

    def _value(self, schema: Any, data: Any) -> Any:
        if isinstance(schema, list):
            branch = _at(schema, data.read_index())
            value = self._value(branch, data)
            return None if _label(branch) == "null" else {_label(branch): value}
        if isinstance(schema, str):
            if schema in self._named:
                return self._value(self._named[schema], data)
            read = getattr(data, _PRIMITIVE[schema])
            return read().decode("iso-8859-1") if schema == "bytes" else read()
        kind = schema["type"]
        if kind in ("record", "error"):
            data.begin_record()
            return {field["name"]: self._value(field["type"], data) for field in schema["fields"]}
        if kind == "array":
            return [self._value(schema["items"], data) for _ in _counted(data)]
        if kind == "map":
            return {data.read_utf8(): self._value(schema["values"], data) for _ in _counted(data)}
        if kind == "enum":
            return _at(schema["symbols"], data.read_enum())
        if kind == "fixed":
            return data.read_fixed(schema["size"]).decode("iso-8859-1")
        return self._value(kind, data)  # a type with properties, such as a logical type: the JSON has what is below it


_PRIMITIVE = {
    "null": "read_null", "boolean": "read_boolean", "int": "read_int", "long": "read_long", "float": "read_float",
    "double": "read_double", "bytes": "read_bytes", "string": "read_utf8",
}  # fmt: skip
"""BinaryDecoder's methods."""


def _counted(data: Any) -> Iterator[None]:
    """Once for each item of an array or a map. They come in blocks; one whose count is negative has its size in bytes after it."""
    while count := data.read_long():
        if count < 0:
            data.read_long()
        for _ in range(abs(count)):
            yield


def _at(choices: list[Any], index: int) -> Any:
    if not 0 <= index < len(choices):
        raise ValueError(f"there are {len(choices)} to choose from, and no number {index}")
    return choices[index]


def _label(branch: Any) -> str:
    """A type's name in a union's JSON; of a named type with its namespace."""
    return str(branch) if isinstance(branch, str) else str(branch.get("name") or _label(branch["type"]))
