"""Avro's types as Arrow's, which Spark has all.

As in Spark's from_avro: an enum is a string, a fixed is bytes, a union with null is a nullable column, one of int and long is a long, one
of float and double a double, and any other a struct member0, member1 … of which one is set. A time of day is microseconds, as Spark 4.0 has
no type for it. A record without fields is true, since Parquet has no column for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from .values import SchemaError

UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")
DECIMAL_PRECISION_MAX = 38
PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.bool_(),  # Parquet has no column of nulls alone
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
WIDENED: Mapping[frozenset[str], pa.DataType] = {frozenset(("int", "long")): pa.int64(), frozenset(("float", "double")): pa.float64()}

INT_END = 2**31

Convert = Callable[[Any], Any]


class Converted(NamedTuple):
    """A type, and how fastavro's value becomes what Arrow takes for it; None if it is that already."""

    type: pa.DataType
    convert: Convert | None = None


def converted(schema: Any, named: Mapping[str, Any], inside: tuple[str, ...] = ()) -> Converted:
    """Of a schema that fastavro has parsed. `named` has its named types. Raises SchemaError for one that contains itself."""
    if isinstance(schema, list):
        return _union(schema, named, inside)
    if isinstance(schema, str):
        return Converted(PRIMITIVES[schema]) if schema in PRIMITIVES else converted(named[schema], named, inside)
    kind = schema["type"]
    if logical := _logical(schema):
        return logical
    match kind:
        case "record" | "error":
            return _record(schema, named, inside)
        case "enum":
            return Converted(pa.string())
        case "fixed":
            return Converted(pa.binary())
        case "array":
            item = converted(schema["items"], named, inside)
            return Converted(pa.list_(item.type), _of_list(item.convert))
        case "map":
            value = converted(schema["values"], named, inside)
            return Converted(pa.map_(pa.string(), value.type), _of_map(value.convert))
        case _:
            return converted(kind, named, inside)


def _logical(schema: Mapping[str, Any]) -> Converted | None:
    """None for a logical type that is nothing else than its base, for Avro or for fastavro."""
    match schema["type"], schema.get("logicalType"):
        case (("bytes" | "fixed"), "decimal"):
            precision = schema["precision"]
            if precision > DECIMAL_PRECISION_MAX:
                raise SchemaError(f"a decimal has precision {precision}, and Spark's at most {DECIMAL_PRECISION_MAX}")
            return Converted(pa.decimal128(precision, schema.get("scale", 0)))
        case "int", "date":
            return Converted(pa.date32())
        case "int", "time-millis":
            return Converted(pa.int64(), _microseconds)
        case "long", "time-micros":
            return Converted(pa.int64(), _microseconds)
        case "long", ("timestamp-millis" | "timestamp-micros"):
            return Converted(UTC_MICROSECONDS)
        case "long", ("local-timestamp-millis" | "local-timestamp-micros"):
            return Converted(pa.timestamp("us"))
        case "string", "uuid":
            return Converted(pa.string(), str)
        case _:
            return None


def _record(schema: Mapping[str, Any], named: Mapping[str, Any], inside: tuple[str, ...]) -> Converted:
    name = schema["name"]
    if name in inside:
        raise SchemaError(f"{name} contains itself, and a column cannot")
    fields = {field["name"]: converted(field["type"], named, (*inside, name)) for field in schema["fields"]}
    if not fields:
        return Converted(pa.bool_(), lambda value: value is not None)
    kind = pa.struct([pa.field(name, field.type) for name, field in fields.items()])
    converts = {name: field.convert for name, field in fields.items() if field.convert is not None}
    if not converts:
        return Converted(kind)

    def convert(value: Any) -> Any:
        return None if value is None else {**value, **{name: each(value[name]) for name, each in converts.items()}}

    return Converted(kind, convert)


def _union(branches: list[Any], named: Mapping[str, Any], inside: tuple[str, ...]) -> Converted:
    members = [branch for branch in branches if branch != "null"]
    if not members:
        return Converted(PRIMITIVES["null"])
    if len(members) == 1:
        return converted(members[0], named, inside)
    names = frozenset(member for member in members if isinstance(member, str))
    if len(names) == len(members) and names in WIDENED:
        return Converted(WIDENED[names])
    kinds = [converted(member, named, inside) for member in members]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        for number, (member, kind) in enumerate(zip(members, kinds, strict=True)):
            if _is_of(value, named.get(member, member) if isinstance(member, str) else member):
                return {f"member{number}": value if kind.convert is None else kind.convert(value)}
        raise AssertionError("fastavro has read a value of one of them")

    return Converted(pa.struct([pa.field(f"member{number}", kind.type) for number, kind in enumerate(kinds)]), convert)


def _is_of(value: Any, schema: Any) -> bool:
    """Whether fastavro reads such a value by this branch of a union, of which it tells only the value."""
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "record" | "error":
            return isinstance(value, dict) and value.keys() == {field["name"] for field in schema["fields"]}
        case "enum":
            return isinstance(value, str) and value in schema["symbols"]
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long" if not isinstance(value, bool):
            return isinstance(value, date | time) or (isinstance(value, int) and (kind == "long" or -INT_END <= value < INT_END))
        case "float" | "double":
            return isinstance(value, float)
        case "string":
            return isinstance(value, str | UUID)
        case "bytes" | "fixed":
            return isinstance(value, Decimal) or (isinstance(value, bytes) and _has_size(value, schema))
        case _:
            return isinstance(value, {"array": list, "map": dict}.get(kind, ()))


def _has_size(value: bytes, schema: Any) -> bool:
    """Of a fixed; bytes may have any size."""
    return isinstance(schema, str) or len(value) == schema.get("size", len(value))


def _of_list(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else [convert(item) for item in value]


def _of_map(convert: Convert | None) -> Convert:
    """Arrow takes pairs."""
    if convert is None:
        return lambda value: None if value is None else list(value.items())
    return lambda value: None if value is None else [(key, convert(item)) for key, item in value.items()]


def _microseconds(value: Any) -> int | None:
    """Of a datetime.time."""
    if value is None:
        return None
    return int(((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond)
