"""The checker on histories made by hand, each with the anomalies that it must report and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.history_checker import check


def ok(process: int, *steps: Any, **more: Any) -> dict[str, Any]:
    return {"p": process, "t": "ok", "f": "txn", "m": list(steps), **more}


def unfinished(outcome: str, process: int, *steps: Any) -> dict[str, Any]:
    return {"p": process, "t": outcome, "f": "txn", "m": list(steps)}


def send(key: str, offset: int | None, value: Any) -> tuple[Any, ...]:
    return ("send", key, offset, value)


def poll(**positions: list[tuple[int, Any]]) -> tuple[Any, ...]:
    return ("poll", positions)


TWO_WRITES = [ok(0, send("x", 0, "a")), ok(0, send("x", 1, "b"))]
BASE = [*TWO_WRITES, ok(1, poll(x=[(0, "a"), (1, "b")]))]
THREE_WRITES = [*TWO_WRITES, ok(0, send("x", 2, "c"))]

HISTORIES: dict[str, tuple[list[dict[str, Any]], set[str]]] = {
    "clean": (BASE, set()),
    "nothing to read": ([*BASE, ok(1, poll(z=[]))], set()),
    "inconsistent": (
        [ok(0, send("x", 0, "a")), ok(1, send("x", 0, "b")), ok(2, poll(x=[(0, "a")])), ok(3, poll(x=[(0, "b")]))],
        {"inconsistent-offsets"},
    ),
    "aborted": ([unfinished("fail", 0, send("x", None, "a")), ok(1, poll(x=[(0, "a")]))], {"aborted-read(G1a)"}),
    "lost": ([*TWO_WRITES, ok(1, poll(x=[(1, "b")]))], {"lost-write", "unseen"}),
    "duplicate": ([ok(0, send("x", 0, "a")), ok(1, poll(x=[(0, "a"), (1, "a")]))], {"duplicate", "int-nonmonotonic-poll"}),
    "skip": ([*THREE_WRITES, ok(1, poll(x=[(0, "a")])), ok(1, poll(x=[(2, "c")])), ok(2, poll(x=[(1, "b")]))], {"poll-skip"}),
    "poll goes back": ([*BASE, ok(1, poll(x=[(0, "a")]))], {"nonmonotonic-poll"}),
    "send goes back": (
        [ok(0, send("x", 1, "b")), ok(0, send("x", 0, "a")), ok(1, poll(x=[(0, "a"), (1, "b")]))],
        {"nonmonotonic-send"},
    ),
    "precommitted": ([ok(0, send("x", 0, "a"), poll(x=[(0, "a")]))], {"precommitted-read"}),
    "torn": ([unfinished("info", 0, send("x", None, "a"), send("y", None, "b")), ok(1, poll(x=[(0, "a")]))], {"torn-txn"}),
    "cycle": ([ok(0, send("x", 0, "a"), poll(y=[(0, "b")])), ok(1, send("y", 0, "b"), poll(x=[(0, "a")]))], {"G1c"}),
    "from nowhere": ([ok(0, send("x", 0, "a")), ok(1, poll(x=[(0, "a"), (1, "zz")]))], {"unknown-value"}),
    "unseen": ([*BASE, ok(0, send("x", 2, "c"))], {"unseen"}),
    "inner skip": ([*THREE_WRITES, ok(1, poll(x=[(0, "a"), (2, "c")])), ok(2, poll(x=[(1, "b")]))], {"int-poll-skip"}),
    "real time": (
        [ok(0, send("x", 1, "a"), inv=0, ret=1), ok(1, send("x", 0, "b"), inv=2, ret=3), ok(2, poll(x=[(0, "b"), (1, "a")]))],
        {"realtime-order"},
    ),
    "overlap is no order": (
        [ok(0, send("x", 1, "a"), inv=0, ret=5), ok(1, send("x", 0, "b"), inv=2, ret=3), ok(2, poll(x=[(0, "b"), (1, "a")]))],
        set(),
    ),
    "unknown but read": ([unfinished("info", 0, send("x", None, "a")), ok(1, poll(x=[(0, "a")]))], set()),
    "offset gap": ([ok(0, send("x", 0, "a")), ok(0, send("x", 5, "b")), ok(1, poll(x=[(0, "a"), (5, "b")]))], set()),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_check_reports_exactly_the_anomalies_of(name: str) -> None:
    history, expected = HISTORIES[name]

    assert set(check(history)) == expected


def test_long_clean_history_is_clean() -> None:
    sends = [ok(number % 10, send(f"k{number % 8}", number // 8, number)) for number in range(20_000)]
    polls = [ok(20 + key, poll(**{f"k{key}": [(number // 8, number) for number in range(key, 20_000, 8)]})) for key in range(8)]

    assert check([*sends, *polls]) == {}


def test_cycle_of_three_operations_is_one_component() -> None:
    history = [
        ok(0, send("x", 0, "a"), poll(z=[(0, "c")])),
        ok(1, send("y", 0, "b"), poll(x=[(0, "a")])),
        ok(2, send("z", 0, "c"), poll(y=[(0, "b")])),
    ]

    assert [sorted(cycle) for cycle in check(history)["G1c"]] == [[0, 1, 2]]
