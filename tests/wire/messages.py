"""What the wire tests run over: every declared message in every declared version, with samples and random values of each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from hypothesis import strategies as st

from protocol.apis import DECLARED
from protocol.schema import Field, FieldType, Kind, Message, schema_of

STORED_MODULES = ("metadata_records", "group_records", "control_records", "voters_record", "consumer_protocol", "producer_snapshot")

_INTEGER_RANGES = {
    "b": (-(2**7), 2**7 - 1),
    "h": (-(2**15), 2**15 - 1),
    "H": (0, 2**16 - 1),
    "i": (-(2**31), 2**31 - 1),
    "I": (0, 2**32 - 1),
    "q": (-(2**63), 2**63 - 1),
}
_LONGEST_ARRAY = 2


def api_messages() -> Iterator[type[Message]]:
    for api in DECLARED.values():
        yield api.request_class
        yield api.response_class


def stored_messages() -> Iterator[type[Message]]:
    for module_name in STORED_MODULES:
        module = import_module(f"protocol.messages.stored.{module_name}")
        yield from (value for value in vars(module).values() if is_message(value) and value.__module__ == module.__name__)


def header_messages() -> Iterator[type[Message]]:
    yield from (value for value in vars(import_module("protocol.messages.headers")).values() if is_message(value))


def is_message(value: object) -> bool:
    """Structs are declared for all possible versions, messages for those they have."""
    return isinstance(value, type) and issubclass(value, Message) and value is not Message and schema_of(value).versions[1] < 1000


def versions_of(classes: Iterator[type[Message]]) -> list[tuple[type[Message], int]]:
    return [(cls, version) for cls in classes for version in range(schema_of(cls).versions[0], schema_of(cls).versions[1] + 1)]


def identify(value: object) -> str:
    return value.__name__ if isinstance(value, type) else f"v{value}"


API_VERSIONS = versions_of(api_messages())
ALL_VERSIONS = API_VERSIONS + versions_of(header_messages()) + versions_of(stored_messages())


def present_fields(cls: type[Message], version: int) -> list[Field]:
    return [field for field in schema_of(cls).fields if field.is_in(version)]


def plain(value: Any, version: int) -> Any:
    """Returns a message as dicts and lists of what a version carries."""
    if isinstance(value, Message):
        return {field.name: plain(getattr(value, field.name), version) for field in present_fields(type(value), version)}
    if isinstance(value, list):
        return [plain(item, version) for item in value]
    return bytes(value) if isinstance(value, memoryview) else value


def populated(cls: type[Message], version: int) -> Any:
    """Returns the message with every field set to something else than its default, two elements in each array."""
    return cls(
        **{field.name: _populated_value(field.type, version, number) for number, field in enumerate(present_fields(cls, version), 1)}
    )


def _populated_value(field_type: FieldType, version: int, number: int) -> Any:
    if field_type.kind is Kind.FIXED:
        return {"?": True, "16s": bytes(range(number, number + 16)), "d": number + 0.5}.get(field_type.code, number + 1)
    if field_type.kind is Kind.STRING:
        return f"ü{number}"
    if field_type.kind is Kind.STRUCT:
        assert field_type.cls is not None
        return populated(field_type.cls, version)
    if field_type.kind is Kind.ARRAY:
        assert field_type.element is not None
        return [_populated_value(field_type.element, version, number + place) for place in range(_LONGEST_ARRAY)]
    return b"\x00\xff" * number


@cache
def values(cls: type[Message], version: int, *, is_for_kio: bool = False) -> st.SearchStrategy[Any]:
    """Returns random messages of one version; for kio such as it has types for."""
    fields = {field.name: _field_values(field, version, is_for_kio) for field in present_fields(cls, version)}
    return st.builds(cls, **fields)


def _field_values(field: Field, version: int, is_for_kio: bool) -> st.SearchStrategy[Any]:
    if is_for_kio and (narrowed := _values_that_kio_knows(field)) is not None:
        return narrowed
    found = _values_of_type(field.type, version, is_for_kio)
    return st.none() | found if field.is_nullable_in(version) else found


def _values_of_type(field_type: FieldType, version: int, is_for_kio: bool) -> st.SearchStrategy[Any]:
    if field_type.kind is Kind.FIXED:
        special = {"?": st.booleans(), "16s": st.binary(min_size=16, max_size=16), "d": st.floats(allow_nan=False)}
        return special[field_type.code] if field_type.code in special else st.integers(*_INTEGER_RANGES[field_type.code])
    if field_type.kind is Kind.STRING:
        return st.text(max_size=6) | st.just("long " * 40)
    if field_type.kind is Kind.STRUCT:
        assert field_type.cls is not None
        return values(field_type.cls, version, is_for_kio=is_for_kio)
    if field_type.kind is Kind.ARRAY:
        assert field_type.element is not None
        return st.lists(_values_of_type(field_type.element, version, is_for_kio), max_size=_LONGEST_ARRAY)
    return st.binary(max_size=6) | st.just(b"long " * 40)


def _values_that_kio_knows(field: Field) -> st.SearchStrategy[Any] | None:
    """kio has an enum for error codes and reads times as datetime and timedelta, whose ranges are smaller than int64's."""
    if field.type.kind is not Kind.FIXED:
        return None
    if field.type.code == "h" and field.name.endswith("error_code"):
        return st.sampled_from((-1, 0, 1, 3, 27, 74, 113))
    if field.type.code == "q" and ("timestamp" in field.name or field.name.endswith(("_ms", "_time"))):
        return st.integers(0, 4_000_000_000_000)
    return None
