"""A dict for very many keys of one request, which never stops the loop to grow.

A dict grows by moving all its entries into a table of twice to four times the size. With 190,000 entries that takes 3 to 10 ms, most of it
page faults: the new table is memory that the process has given back before. A SpreadDict keeps its entries in many small dicts.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, TypeVar, overload

Key = TypeVar("Key")
Value = TypeVar("Value")
Default = TypeVar("Default")

DICT_KEYS_MAX = 10_000
"""A plain dict of so many grows within half a millisecond."""

PARTS = 127
"""Of 190,000 entries each has 1,500."""


def dict_for(keys_count: int) -> MutableMapping[Any, Any]:
    """A dict for at most `keys_count` keys: a plain one, which is five times as fast, unless they are very many."""
    return {} if keys_count <= DICT_KEYS_MAX else SpreadDict()


class SpreadDict(MutableMapping[Key, Value]):
    """In the order in which keys were put in, like dict; but a key that was taken out must not be put in again."""

    __slots__ = ("_count", "_keys", "_parts")

    def __init__(self) -> None:
        self._parts: list[dict[Key, Value]] = [{} for _ in range(PARTS)]
        self._keys: list[Key] = []  # those that were taken out too
        self._count = 0

    def part(self, key: Key) -> dict[Key, Value]:
        """The small dict that has `key`, if any has."""
        # The tuple's hash scatters numbers that follow each other; else all parts would grow at the same time.
        return self._parts[hash((key,)) % PARTS]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Key]:
        for key in self._keys:
            if key in self.part(key):
                yield key

    def __contains__(self, key: Any) -> bool:
        return key in self.part(key)

    def __getitem__(self, key: Key) -> Value:
        return self.part(key)[key]

    def __setitem__(self, key: Key, value: Value) -> None:
        part = self.part(key)
        if key not in part:
            self._keys.append(key)
            self._count += 1
        part[key] = value

    def __delitem__(self, key: Key) -> None:
        del self.part(key)[key]
        self._count -= 1

    def popitem(self) -> tuple[Key, Value]:
        """The last one."""
        while self._keys:
            key = self._keys.pop()
            part = self.part(key)
            if key in part:
                self._count -= 1
                return key, part.pop(key)
        raise KeyError("it is empty")

    # MutableMapping's own raise and catch KeyError for each absent key.

    @overload
    def get(self, key: Key) -> Value | None: ...

    @overload
    def get(self, key: Key, default: Value | Default) -> Value | Default: ...

    def get(self, key: Key, default: Any = None) -> Any:
        return self.part(key).get(key, default)

    def setdefault(self, key: Key, default: Value) -> Value:
        part = self.part(key)
        if key not in part:
            self._keys.append(key)
            self._count += 1
            part[key] = default
        return part[key]
