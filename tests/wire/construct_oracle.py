"""An independent codec in construct, built from the same declarations: it must agree with `protocol.codec` byte for byte.

It knows plain dicts and lists, not the message classes, and shares no code with `protocol.codec`: whatever one of them gets wrong
about lengths, nulls or tagged fields, the other would have to get wrong in the same way.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import construct as c

from protocol.schema import Field, FieldType, Kind, Message, schema_of

_FIXED = {
    "b": c.Int8sb,
    "h": c.Int16sb,
    "H": c.Int16ub,
    "i": c.Int32sb,
    "I": c.Int32ub,
    "q": c.Int64sb,
    "d": c.Float64b,
    "?": c.Flag,
    "16s": c.Bytes(16),
}


class PlainList(c.Adapter):
    def _decode(self, obj: Any, context: Any, path: str) -> list[Any]:
        return list(obj)

    def _encode(self, obj: list[Any], context: Any, path: str) -> list[Any]:
        return obj


class LengthPrefixed(c.Construct):
    """A length, then as many bytes or elements; `null` is the length that means None, `bias` is added to all others."""

    def __init__(self, length: c.Construct, *, null: int, bias: int, element: c.Construct | None, is_nullable: bool) -> None:
        super().__init__()
        self.length, self.null, self.bias, self.element, self.is_nullable = length, null, bias, element, is_nullable

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        length = self.length._parsereport(stream, context, path)
        if length == self.null:
            assert self.is_nullable, path
            return None
        assert length >= self.bias, path
        content = c.Bytes(length - self.bias) if self.element is None else PlainList(c.Array(length - self.bias, self.element))
        return content._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            assert self.is_nullable, path
            self.length._build(self.null, stream, context, path)
            return obj
        self.length._build(len(obj) + self.bias, stream, context, path)
        content = c.Bytes(len(obj)) if self.element is None else c.Array(len(obj), self.element)
        content._build(obj, stream, context, path)
        return obj


class NullableText(c.Adapter):
    def _decode(self, obj: bytes | None, context: Any, path: str) -> str | None:
        return None if obj is None else obj.decode("utf-8")

    def _encode(self, obj: str | None, context: Any, path: str) -> bytes | None:
        return None if obj is None else obj.encode("utf-8")


class NullableStruct(c.Construct):
    def __init__(self, inner: c.Construct) -> None:
        super().__init__()
        self.inner = inner

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        return self.inner._parsereport(stream, context, path) if c.Int8sb._parsereport(stream, context, path) == 1 else None

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        c.Int8sb._build(-1 if obj is None else 1, stream, context, path)
        if obj is not None:
            self.inner._build(obj, stream, context, path)
        return obj


class Fields(c.Construct):
    """The fields of a struct one after another, then in a flexible version its tagged fields."""

    RAW_TAGGED_FIELDS = c.PrefixedArray(c.VarInt, c.Struct("tag" / c.VarInt, "content" / c.Prefixed(c.VarInt, c.GreedyBytes)))

    def __init__(self, plain: dict[str, c.Construct], tagged: dict[int, tuple[str, c.Construct, Any]], is_flexible: bool) -> None:
        super().__init__()
        self.plain, self.tagged, self.is_flexible = plain, tagged, is_flexible

    def _parse(self, stream: Any, context: Any, path: str) -> dict[str, Any]:
        parsed = {name: inner._parsereport(stream, context, f"{path}.{name}") for name, inner in self.plain.items()}
        parsed |= {name: default for name, _, default in self.tagged.values()}
        if self.is_flexible:
            for raw in self.RAW_TAGGED_FIELDS._parsereport(stream, context, path):
                name, inner, _ = self.tagged[raw.tag]
                parsed[name] = inner.parse(raw.content)
        return parsed

    def _build(self, obj: dict[str, Any], stream: Any, context: Any, path: str) -> Any:
        for name, inner in self.plain.items():
            inner._build(obj[name], stream, context, f"{path}.{name}")
        if self.is_flexible:
            written = [(tag, inner.build(obj[name])) for tag, (name, inner, default) in sorted(self.tagged.items()) if obj[name] != default]
            self.RAW_TAGGED_FIELDS._build([{"tag": tag, "content": content} for tag, content in written], stream, context, path)
        return obj


@cache
def oracle(cls: type[Message], version: int) -> c.Construct:
    """Returns the codec of one version of a message."""
    return _fields(cls, version, schema_of(cls).is_flexible(version))


def _fields(cls: type[Message], version: int, is_flexible: bool) -> c.Construct:
    plain: dict[str, c.Construct] = {}
    tagged: dict[int, tuple[str, c.Construct, Any]] = {}
    for field in schema_of(cls).fields:
        if not field.is_in(version):
            continue
        inner = _type(field.type, version, is_flexible, is_flexible and field.is_compactable, field.is_nullable_in(version))
        if field.tag is None:
            plain[field.name] = inner
        else:
            tagged[field.tag] = (field.name, inner, _default(field, version))
    return Fields(plain, tagged, is_flexible)


def _type(field_type: FieldType, version: int, is_flexible: bool, is_compact: bool, is_nullable: bool) -> c.Construct:
    if field_type.kind is Kind.FIXED:
        return _FIXED[field_type.code]
    if field_type.kind is Kind.STRUCT:
        assert field_type.cls is not None
        inner = _fields(field_type.cls, version, is_flexible)
        return NullableStruct(inner) if is_nullable else inner
    element = None
    if field_type.kind is Kind.ARRAY:
        assert field_type.element is not None
        element = _type(field_type.element, version, is_flexible, is_flexible, False)
    legacy_length = c.Int16sb if field_type.kind is Kind.STRING else c.Int32sb
    length, null, bias = (c.VarInt, 0, 1) if is_compact else (legacy_length, -1, 0)
    prefixed = LengthPrefixed(length, null=null, bias=bias, element=element, is_nullable=is_nullable)
    return NullableText(prefixed) if field_type.kind is Kind.STRING else prefixed


def _default(field: Field, version: int) -> Any:
    if not isinstance(field.default, type):
        return field.default
    return {inner.name: _default(inner, version) for inner in schema_of(field.default).fields if inner.is_in(version)}
