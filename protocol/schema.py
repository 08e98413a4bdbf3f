"""How messages are declared: one class per message for all its versions, the versions on the field.

    @api(key=1, versions=(4, 18), flexible=12)
    class FetchRequest:
        max_wait_ms: Int32 = 0
        session_id: Int32 = since(7, default=0, ignorable=True)
        topics: Array[FetchTopic] = []
        rack_id: String = since(11, default="", ignorable=True)

Names, versions and defaults are those of Kafka's own message definitions, so that both can be read side by side. A declared class
is slotted and mutable, takes keyword arguments only, and every field has Kafka's default. Every instance gets its own copy of a list
or struct that is a default.

Declaring must be cheap, for a broker imports dozens of these before its first answer: the annotations stay strings (modules of
declarations need `from __future__ import annotations`) and are resolved, and `__init__` is compiled, at the first use of a class.
`protocol.codec` turns a declaration into bytes and back; nothing else reads the `Schema`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar, TypeAlias, TypeVar, dataclass_transform

Int8: TypeAlias = int
Int16: TypeAlias = int
UInt16: TypeAlias = int
Int32: TypeAlias = int
UInt32: TypeAlias = int
Int64: TypeAlias = int
Float64: TypeAlias = float
Bool: TypeAlias = bool
String: TypeAlias = str
Bytes: TypeAlias = bytes
Uuid: TypeAlias = bytes
"""16 raw bytes."""
Records: TypeAlias = Any
"""A memoryview over the frame when decoded; anything with `len()` when encoded, a slice of a segment file for instance."""

T = TypeVar("T")
Array: TypeAlias = list[T]

LAST_POSSIBLE_VERSION = 32767
"""Versions are int16 on the wire."""

_STRUCT_CODES = {
    "Int8": "b", "Int16": "h", "UInt16": "H", "Int32": "i", "UInt32": "I", "Int64": "q", "Float64": "d", "Bool": "?", "Uuid": "16s",
}  # fmt: skip
_MISSING: Any = object()


class Kind(Enum):
    """What the codec has to tell apart."""

    FIXED = "fixed"
    STRING = "String"
    BYTES = "Bytes"
    RECORDS = "Records"
    ARRAY = "Array"
    STRUCT = "struct"


class FieldType:
    """A resolved annotation. `code` is the `struct` module's for FIXED, `element` is set for ARRAY, `cls` for STRUCT."""

    __slots__ = ("cls", "code", "element", "kind")

    def __init__(self, kind: Kind, *, code: str = "", element: FieldType | None = None, cls: type[Message] | None = None) -> None:
        self.kind = kind
        self.code = code
        self.element = element
        self.cls = cls


class Field:
    """One field of a message: its type and the versions that carry it (`first_version` and `last_version` inclusive)."""

    __slots__ = ("default", "first_version", "ignorable", "is_compactable", "last_version", "name", "nullable_since", "tag", "type")

    def __init__(self, name: str, field_type: FieldType, *, is_nullable: bool, declared: _Since) -> None:
        self.name = name
        self.type = field_type
        self.first_version = declared.first_version
        self.last_version = declared.last_version
        self.default = declared.default
        self.nullable_since = declared.nullable_since if is_nullable else None
        self.tag = declared.tag
        self.ignorable = declared.ignorable
        self.is_compactable = declared.is_compactable

    def is_in(self, version: int) -> bool:
        return self.first_version <= version <= self.last_version

    def is_nullable_in(self, version: int) -> bool:
        return self.nullable_since is not None and version >= self.nullable_since


class _Since:
    """What `since()` was told."""

    __slots__ = ("default", "first_version", "ignorable", "is_compactable", "is_secret", "last_version", "nullable_since", "tag")

    def __init__(
        self,
        first_version: int,
        default: object,
        *,
        last_version: int,
        nullable_since: int,
        tag: int | None,
        ignorable: bool,
        is_compactable: bool,
        is_secret: bool,
    ) -> None:
        self.first_version = first_version
        self.default = default
        self.last_version = last_version
        self.nullable_since = nullable_since
        self.tag = tag
        self.ignorable = ignorable
        self.is_compactable = is_compactable
        self.is_secret = is_secret


def since(
    version: int,
    *,
    default: object = _MISSING,
    factory: Callable[[], object] | None = None,
    until: int | None = None,
    nullable_since: int = 0,
    tag: int | None = None,
    ignorable: bool = False,
    compact: bool = True,
    secret: bool = False,
) -> Any:
    """Says more about a field than its type and default.

    `version` and `until` are the first and the last version that carry it. A field annotated `| None` may be null on the wire from
    `nullable_since`. A field with a `tag` is a tagged field of a flexible version. Encoding a value other than the default in a version
    that does not carry it is an error unless the field is `ignorable`. `factory` is the struct class whose fresh instance is the default.
    `compact=False` keeps the old length prefix in flexible versions (the request header's client id alone). `secret` hides the value in the
    message's text.
    """
    if (default is _MISSING) == (factory is None):
        raise TypeError("a field takes either a default or a factory")
    return _Since(
        version,
        default if factory is None else factory,
        last_version=LAST_POSSIBLE_VERSION if until is None else until,
        nullable_since=nullable_since,
        tag=tag,
        ignorable=ignorable,
        is_compactable=compact,
        is_secret=secret,
    )


class Schema:
    """What is known of one declared class: its versions, its fields, and the functions that were compiled for it.

    Owned by the class it describes. `fields` resolves the annotations at its first use.
    """

    __slots__ = (
        "_declared",
        "_fields",
        "cls",
        "decoders",
        "encoders",
        "encoders_in_turns",
        "flexible_since",
        "is_request",
        "key",
        "versions",
    )

    def __init__(
        self,
        declared: Mapping[str, tuple[str, object]],
        versions: tuple[int, int],
        flexible: int | None,
        *,
        key: int | None = None,
        is_request: bool = False,
    ) -> None:
        self._declared = declared
        self._fields: tuple[Field, ...] | None = None
        self.cls: type[Message] = Message
        self.key = key
        self.is_request = is_request
        self.versions = versions
        self.flexible_since = flexible
        self.decoders: dict[int, Callable[..., Any]] = {}
        self.encoders: dict[int, Callable[..., Any]] = {}
        self.encoders_in_turns: dict[int, Callable[..., Any]] = {}

    @property
    def fields(self) -> tuple[Field, ...]:
        if self._fields is None:
            namespace = vars(sys.modules[self.cls.__module__])
            self._fields = tuple(_resolve_field(name, *declared, namespace) for name, declared in self._declared.items())
        return self._fields

    @property
    def defaults(self) -> dict[str, object]:
        return {name: value.default if isinstance(value, _Since) else value for name, (_, value) in self._declared.items()}

    def is_secret(self, name: str) -> bool:
        """Whether the field's value may be in no log and no traceback."""
        declared = self._declared[name][1]
        return isinstance(declared, _Since) and declared.is_secret

    def has_version(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since


class Message:
    """Base of every declared class: construction, equality and text from its slots. Unhashable, for it is mutable."""

    __slots__: tuple[str, ...] = ()
    __schema__: ClassVar[Schema]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: object) -> None:
        """Compiles the class's own `__init__` at its first instance, then takes its place no more."""
        cls = type(self)
        cls.__init__ = _compile_init(cls.__schema__)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        is_secret = self.__schema__.is_secret
        values = ", ".join(f"{name}={'[hidden]' if is_secret(name) else repr(getattr(self, name))}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def struct(cls: type[T]) -> type[T]:
    """Declares a struct nested in messages; its fields' versions are those of the message around it."""
    return _declare(cls, (0, LAST_POSSIBLE_VERSION), None)


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def message(*, versions: tuple[int, int], flexible: int | None, key: int | None = None) -> Callable[[type[T]], type[T]]:
    """Declares a response or a stored record: its first and last version, and the first flexible one (None: it has none).

    Stored records of a log with several types have a key that tells them apart.
    """
    return lambda cls: _declare(cls, versions, flexible, key=key)


@dataclass_transform(kw_only_default=True, field_specifiers=(since,))
def api(*, key: int, versions: tuple[int, int], flexible: int | None) -> Callable[[type[T]], type[T]]:
    """Declares the request of the API with this key."""
    return lambda cls: _declare(cls, versions, flexible, key=key, is_request=True)


def schema_of(cls: type[Any]) -> Schema:
    """Returns the schema of a declared class; raises TypeError for any other."""
    schema = getattr(cls, "__schema__", None)
    if not isinstance(schema, Schema):
        raise TypeError(f"{cls.__name__} is not a declared message")
    return schema


def _declare(cls: type[T], versions: tuple[int, int], flexible: int | None, *, key: int | None = None, is_request: bool = False) -> type[T]:
    """Returns a slotted class in place of `cls`: slots cannot be added to a class that exists."""
    annotations: dict[str, str] = cls.__annotations__
    declared = {name: (annotation, vars(cls)[name]) for name, annotation in annotations.items()}
    schema = Schema(declared, versions, flexible, key=key, is_request=is_request)
    body = {
        "__slots__": tuple(annotations),
        "__schema__": schema,
        "__annotations__": annotations,
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
    }
    schema.cls = type(cls.__name__, (Message,), body)
    return schema.cls  # type: ignore[return-value]


def _resolve_field(name: str, annotation: str, value: object, namespace: Mapping[str, Any]) -> Field:
    base = annotation.removesuffix(" | None")
    declared = value if isinstance(value, _Since) else since(0, default=value)
    return Field(name, _resolve_type(base, namespace), is_nullable=base != annotation, declared=declared)


def _resolve_type(annotation: str, namespace: Mapping[str, Any]) -> FieldType:
    if annotation.startswith("Array["):
        return FieldType(Kind.ARRAY, element=_resolve_type(annotation[len("Array[") : -1], namespace))
    if annotation in _STRUCT_CODES:
        return FieldType(Kind.FIXED, code=_STRUCT_CODES[annotation])
    if annotation in ("String", "Bytes", "Records"):
        return FieldType(Kind(annotation))
    return FieldType(Kind.STRUCT, cls=schema_of(namespace[annotation]).cls)


def _compile_init(schema: Schema) -> Callable[..., None]:
    namespace: dict[str, Any] = {"MISSING": _MISSING}
    parameters, body = [], []
    for name, default in schema.defaults.items():
        if isinstance(default, (list, type)):
            namespace[f"factory_{name}"] = list if isinstance(default, list) else default
            parameters.append(f"{name}=MISSING")
            body.append(f"    self.{name} = factory_{name}() if {name} is MISSING else {name}")
        else:
            parameters.append(f"{name}={default!r}")
            body.append(f"    self.{name} = {name}")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    exec("\n".join([f"def __init__({signature}):", *(body or ["    pass"])]), namespace)
    compiled: Callable[..., None] = namespace.pop("__init__")  # its globals hold it no more: no cycle for the collector
    return compiled
