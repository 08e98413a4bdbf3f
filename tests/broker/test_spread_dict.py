"""A SpreadDict behaves as a dict, and no table that it keeps is large."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from broker.spread_dict import DICT_KEYS_MAX, PARTS, SpreadDict, dict_for

COUNT = 50_000
KEYS: dict[str, Callable[[int], Any]] = {
    "numbers": int,
    "numbers far apart": lambda number: number * PARTS,
    "names": lambda number: f"topic-{number}",
    "pairs": lambda number: ("topic", number),
    "ids": lambda number: number.to_bytes(16),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_are_spread_evenly_and_few_parts_grow_at_the_same_time(kind: str) -> None:
    make_key = KEYS[kind]
    spread = SpreadDict[Any, int]()

    for number in range(COUNT):
        spread[make_key(number)] = number

    sizes = {len(spread.part(make_key(number))) for number in range(COUNT)}
    assert max(sizes) < 2 * COUNT // PARTS
    assert len(sizes) > PARTS // 8  # of one size they would all need a larger table after the same key


def test_it_does_what_a_dict_does() -> None:
    source = random.Random(1)
    plain: dict[int, int] = {}
    spread = SpreadDict[int, int]()
    removed: set[int] = set()

    for step in range(5_000):
        key = source.randrange(1_000)
        if key in removed:
            continue
        match source.randrange(6):
            case 0:
                plain[key] = spread[key] = step
            case 1:
                assert plain.setdefault(key, step) == spread.setdefault(key, step)
            case 2:
                assert plain.get(key) == spread.get(key)
                assert plain.get(key, step) == spread.get(key, step)
            case 3:
                assert (key in plain) is (key in spread)
            case 4 if source.random() < 0.1:
                assert plain.pop(key, None) == spread.pop(key, None)
                removed.add(key)
            case _:
                assert len(plain) == len(spread)

    assert list(plain.items()) == list(spread.items())
    assert plain.popitem() == spread.popitem()
    with pytest.raises(KeyError):
        spread[1_000]
    with pytest.raises(KeyError):
        del spread[1_000]
    assert len(spread) == len(plain)


def test_few_keys_get_a_plain_dict() -> None:
    assert type(dict_for(DICT_KEYS_MAX)) is dict
    assert type(dict_for(DICT_KEYS_MAX + 1)) is SpreadDict
