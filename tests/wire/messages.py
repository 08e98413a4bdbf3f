"""What the wire tests run over: every declared message in every declared version, with samples and random values of each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from random import Random
from typing import Any

from protocol.apis import DECLARED
from protocol.schema import Field, FieldType, Kind, Message, schema_of

STORED_MODULES = (
    "metadata_records",
    "group_records",
    "transaction_records",
    "control_records",
    "voters_record",
    "consumer_protocol",
    "producer_snapshot",
)

_INTEGER_RANGES = {
    "b": (-(2**7), 2**7 - 1),
    "h": (-(2**15), 2**15 - 1),
    "H": (0, 2**16 - 1),
    "i": (-(2**31), 2**31 - 1),
    "I": (0, 2**32 - 1),
    "q": (-(2**63), 2**63 - 1),
}
_FLOATS = (0.0, -0.0, 1.5, -1e-300, 1e300, float("inf"), float("-inf"))
_LETTERS = "aZ09 ._-\0üßЖ漢\U0001f40b"
_LONGEST_ARRAY = 2
_LONGEST_TEXT = 6
_LONG_TEXT = "long " * 40
"""Its length takes two bytes as a varint."""

OWN_TAGS_FIRST = 7_500
"""Tagged fields from this one on are Barnabas's own: Kafka and other implementations do not know them."""

RANDOM_MESSAGES = 8
"""Of each message in each version."""


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


def versions_of(cls: type[Message]) -> range:
    first, last = schema_of(cls).versions
    return range(first, last + 1)


def name_of(cls: type[Message]) -> str:
    return cls.__name__


ALL_MESSAGES = [*api_messages(), *header_messages(), *stored_messages()]


def is_own(field: Field) -> bool:
    return field.tag is not None and field.tag >= OWN_TAGS_FIRST


@cache
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


def random_messages(cls: type[Message], version: int, *, is_for_kio: bool = False) -> Iterator[Any]:
    """Random messages of one version, the same ones in every run; for kio such as it has types for."""
    random = Random(f"{cls.__name__} {version}")
    for _ in range(RANDOM_MESSAGES):
        yield _random_message(cls, version, random, is_for_kio)


def _random_message(cls: type[Message], version: int, random: Random, is_for_kio: bool) -> Any:
    fields = [field for field in present_fields(cls, version) if not (is_for_kio and is_own(field))]
    return cls(**{field.name: _random_field(field, version, random, is_for_kio) for field in fields})


def _random_field(field: Field, version: int, random: Random, is_for_kio: bool) -> Any:
    known = _values_that_kio_knows(field) if is_for_kio else None
    if known is not None:
        return random.choice(known)
    if field.is_nullable_in(version) and random.random() < 0.3:
        return None
    return _random_value(field.type, version, random, is_for_kio)


def _random_value(field_type: FieldType, version: int, random: Random, is_for_kio: bool) -> Any:
    if field_type.kind is Kind.FIXED:
        return _random_fixed(field_type.code, random)
    if field_type.kind is Kind.STRUCT:
        assert field_type.cls is not None
        return _random_message(field_type.cls, version, random, is_for_kio)
    if field_type.kind is Kind.ARRAY:
        assert field_type.element is not None
        return [_random_value(field_type.element, version, random, is_for_kio) for _ in range(random.randint(0, _LONGEST_ARRAY))]
    is_long, length = random.random() < 0.1, random.randint(0, _LONGEST_TEXT)
    if field_type.kind is Kind.STRING:
        return _LONG_TEXT if is_long else "".join(random.choices(_LETTERS, k=length))
    return _LONG_TEXT.encode() if is_long else random.randbytes(length)


def _random_fixed(code: str, random: Random) -> Any:
    if code == "?":
        return random.random() < 0.5
    if code == "16s":
        return random.randbytes(16)
    if code == "d":
        return random.choice(_FLOATS)
    low, high = _INTEGER_RANGES[code]
    if random.random() < 0.3:
        return random.choice((low, high, 0, 1, max(low, -1)))
    bound = 1 << random.randrange(high.bit_length())  # of every order of magnitude
    return random.randint(max(low, -bound), bound)


def _values_that_kio_knows(field: Field) -> tuple[int, ...] | None:
    """kio has an enum for error codes and reads times as datetime and timedelta, whose ranges are smaller than int64's."""
    if field.type.kind is not Kind.FIXED:
        return None
    if field.type.code == "h" and field.name.endswith("error_code"):
        return (-1, 0, 1, 3, 27, 74, 113)
    if field.type.code == "q" and ("timestamp" in field.name or field.name.endswith(("_ms", "_time"))):
        return (0, 1, 999, 1_700_000_000_123, 4_000_000_000_000)
    return None
