"""The source of one generated function of the codec while it is written, and how small a value can be encoded."""

from __future__ import annotations

import linecache
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .errors import DecodeError
from .schema import Field, FieldType, Kind, Message, schema_of


class Source(ABC):
    """The source of one function while it is being written.

    `pending` are fixed-width fields, (variable or expression, struct code), that wait to share a `struct` call with their neighbours;
    `flush` writes that call.
    """

    def __init__(self, cls: type[Any], version: int, purpose: str) -> None:
        schema = schema_of(cls)
        if not schema.has_version(version):
            raise ValueError(f"{cls.__name__} has versions {schema.versions[0]} to {schema.versions[1]}, not {version}")
        self.version = version
        self.is_flexible = schema.is_flexible(version)
        self.function_name = _function_name(cls, version, purpose)
        self.title = f"{cls.__name__} v{version}"
        self.lines: list[str] = []
        self.indent = 0
        self.names_count = 0
        self.pending: list[tuple[str, str]] = []
        self.namespace: dict[str, Any] = {"struct_error": struct.error, "unpack_from": struct.unpack_from, "DecodeError": DecodeError}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Indents what is written inside; flushes before it, and before it ends."""
        self.flush()
        self.line(header)
        self.indent += 1
        yield
        self.flush()
        self.indent -= 1

    def name(self, prefix: str) -> str:
        self.names_count += 1
        return f"{prefix}{self.names_count}"

    def bind(self, name: str, value: object) -> str:
        """Makes `value` known to the function under `name`."""
        self.namespace[name] = value
        return name

    def bind_class(self, cls: type[Message]) -> str:
        return self.bind(cls.__name__, cls)

    def bind_struct(self, codes: str, method: str) -> str:
        return self.bind(f"{method}_{codes.replace('?', 'B_').replace('16s', 'U')}", getattr(struct.Struct(">" + codes), method))

    @abstractmethod
    def flush(self) -> None:
        """Write the call for the pending fields."""

    def compile(self) -> Callable[..., Any]:
        text = "\n".join(self.lines) + "\n"
        file_name = _file_name(self.function_name)
        linecache.cache[file_name] = (len(text), None, text.splitlines(keepends=True), file_name)  # for tracebacks and debuggers
        exec(compile(text, file_name, "exec"), self.namespace)
        # Taken out: a function that its own globals hold would need the collector to go.
        compiled: Callable[..., Any] = self.namespace.pop(self.function_name)
        return compiled


def _function_name(cls: type[Any], version: int, purpose: str) -> str:
    return f"{purpose}_{cls.__name__}_v{version}"


def _file_name(function_name: str) -> str:
    return f"generated {function_name}"  # linecache looks for no file of a name within <>


def smallest_size(field_type: FieldType, version: int, is_flexible: bool) -> int:
    """Returns the size in bytes of the shortest encoding of a value: what a hostile count is held against."""
    if field_type.kind is Kind.FIXED:
        return struct.calcsize(">" + field_type.code)
    if field_type.kind is Kind.STRUCT:
        assert field_type.cls is not None
        fields = [field for field in schema_of(field_type.cls).fields if field.is_in(version) and field.tag is None]
        return sum(_smallest_field_size(field, version, is_flexible) for field in fields) + is_flexible
    if is_flexible:
        return 1
    return 2 if field_type.kind is Kind.STRING else 4


def _smallest_field_size(field: Field, version: int, is_flexible: bool) -> int:
    if field.type.kind is Kind.STRUCT and field.is_nullable_in(version):
        return 1
    return smallest_size(field.type, version, is_flexible and field.is_compactable)
