"""What the program "collect" is sent and what it tells: numbers, and the set of them in each group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tests.streams.records import Record

GROUP_COUNT = 8


def some_numbers(count: int) -> list[Record]:
    return [Record(str(number), f"group{number % GROUP_COUNT} {number}") for number in range(count)]


def sets_of(numbers: Iterable[Record]) -> dict[str, str]:
    """The numbers of each group, as the program tells them."""
    sets: dict[str, list[int]] = defaultdict(list)
    for record in numbers:
        group, number = (record.value or "").split()
        sets[group].append(int(number))
    return {group: " ".join(map(str, sorted(found))) for group, found in sets.items()}


def last_sets(results: Iterable[Record]) -> dict[str, str]:
    return {each.key: each.value or "" for each in results}
