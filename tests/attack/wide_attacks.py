"""Every array of every request, as long as one request may hold: no API is forgotten, nor one that is added tomorrow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from protocol.apis import APIS, FETCH_KEY
from protocol.records import SimpleRecord, build_batch
from protocol.schema import Field, FieldType, Kind, schema_of
from tests.attack.attacker import Attacker
from tests.attack.target import ATTACKED_TOPIC

ENTRIES_MAX = 20_000
"""barnabas.request.entries.max; half more in a Fetch."""
ENTRIES_OF_THE_REST = 500
"""At most, in a message, outside of the array that is long."""
NUMBERS_PER_ENTRY = 8
SAME_NAME, OTHER_NAMES = "one name", "other names"
_INTEGERS = {
    "acks": 1, "timeout_ms": 1000, "replica_id": -1, "session_epoch": -1, "resource_type": 2, "replication_factor": 1,
    "num_partitions": 1, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 1000, "max_wait_ms": 0, "session_id": 0,
    "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20, "key_type": 0, "config_operation": 0, "response_partition_limit": 2000,
}  # fmt: skip
_RANGES = {"b": 2**7, "h": 2**15, "H": 2**16, "i": 2**31, "I": 2**32, "q": 2**63}


def widen_every_array(attacker: Attacker) -> None:
    """One request for each array, just below the limit: first with one name that often, then with as many names. One with more is refused
    by name."""
    for api in APIS.values():
        entries_max = ENTRIES_MAX * 3 // 2 if api.key == FETCH_KEY else ENTRIES_MAX
        for version in sorted({api.min_version, api.max_version}):
            for path in array_paths(api.request_class, version):
                for names in (SAME_NAME, OTHER_NAMES):
                    if attacker.is_over:
                        return
                    count = elements_of(attacker.count(entries_max - ENTRIES_OF_THE_REST), api.request_class, version, path)
                    message = wide_message(api.request_class, version, path, count, names)
                    attacker.ask(f"{api.name} v{version}, {count} {'.'.join(path)}, {names}", message, version)
                too_many = elements_of(entries_max, api.request_class, version, path) + NUMBERS_PER_ENTRY
                attacker.ask_refused(wide_message(api.request_class, version, path, too_many), version)


def array_paths(cls: type[Any], version: int) -> Iterator[tuple[str, ...]]:
    """The arrays in a message, each as the names of the fields that lead to it."""
    for field in schema_of(cls).fields:
        if not field.is_in(version) or field.tag is not None:
            continue
        inner = field.type.element if field.type.kind is Kind.ARRAY else field.type
        if field.type.kind is Kind.ARRAY:
            yield (field.name,)
        if inner is not None and inner.cls is not None:
            yield from ((field.name, *path) for path in array_paths(inner.cls, version))


def elements_of(entries: int, cls: type[Any], version: int, path: tuple[str, ...]) -> int:
    """How many elements of that array, with arrays of one element inside each, count for so many entries."""
    found: FieldType | None = None
    for name in path:
        found = next(field for field in schema_of(cls).fields if field.name == name).type
        found = found.element or found
        cls = found.cls or cls
    assert found is not None
    if _is_number(found):
        return entries * NUMBERS_PER_ENTRY
    return entries // (1 + (_arrays_of_entries(found.cls, version) if found.cls is not None else 0))


def _arrays_of_entries(cls: type[Any], version: int) -> int:
    """The arrays in a message, however deep, whose elements count one each."""
    count = 0
    for field in schema_of(cls).fields:
        if field.is_in(version) and field.tag is None:
            count += field.type.element is not None and not _is_number(field.type.element)
            inner = field.type.element or field.type
            count += _arrays_of_entries(inner.cls, version) if inner.cls is not None else 0
    return count


def _is_number(kind: FieldType) -> bool:
    return kind.kind is Kind.FIXED and kind.code != "16s"


def wide_message(cls: type[Any], version: int, path: tuple[str, ...], count: int, names: str = SAME_NAME) -> Any:
    """A message whose array at `path` has `count` elements and every other array one."""
    return _Filler(version, path, count, names).message(cls)


class _Filler:
    """Makes such messages."""

    def __init__(self, version: int, path: tuple[str, ...], count: int, names: str) -> None:
        self._version = version
        self._path = path
        self._count = count
        self._names = names
        self._batch = bytes(build_batch([SimpleRecord(None, b"x")]))

    def message(self, cls: type[Any], path: tuple[str, ...] = (), number: int = 0) -> Any:
        fields = [field for field in schema_of(cls).fields if field.is_in(self._version) and field.tag is None]
        return cls(**{field.name: self._value(field, (*path, field.name), number) for field in fields})

    def _value(self, field: Field, path: tuple[str, ...], number: int) -> Any:
        if field.type.kind is not Kind.ARRAY:
            return self._plain(field.type, field.name, path, number)
        assert field.type.element is not None
        element = field.type.element
        count = self._count if path == self._path else 1
        if self._is_inside(path) and self._names == SAME_NAME:
            return [self._plain(element, field.name, path, 0)] * count
        return [self._plain(element, field.name, path, place if count > 1 else number) for place in range(count)]

    def _is_inside(self, path: tuple[str, ...]) -> bool:
        return path[: len(self._path)] == self._path

    def _plain(self, kind: FieldType, name: str, path: tuple[str, ...], number: int) -> Any:
        if kind.kind is Kind.STRUCT:
            assert kind.cls is not None
            return self.message(kind.cls, path, number)
        if kind.kind is Kind.STRING:
            return f"{ATTACKED_TOPIC}-{number}" if self._names == OTHER_NAMES and self._is_inside(path) else ATTACKED_TOPIC
        if kind.kind is Kind.RECORDS:
            return self._batch
        if kind.kind is Kind.BYTES:
            return b""
        if kind.code == "?":
            return name.startswith("include")
        if kind.code == "16s":
            return (number + 2).to_bytes(16)  # 0 and 1 mean something
        if kind.code == "d":
            return math.e
        return _INTEGERS.get(name, number % _RANGES[kind.code])
