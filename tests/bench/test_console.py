"""`python -m bench console` at a thousandth of its size: it measures every page and the tail, and says which target was missed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bench import console
from bench.servers import BARNABAS


def test_pages_memory_and_tail_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "NEW_CONSOLES", 1)
    monkeypatch.setattr(console, "VISITS", 1)

    result = console.run(BARNABAS, scale=0.001, data_dir=tmp_path)

    assert all(0 < first_ms <= figures_ms for times in result.pages.values() for first_ms, figures_ms in times)
    assert (result.tail.came, result.tail.sent, result.tail.shown) == (10_000, 10_000, console.SHOWN)
    assert result.tail.updates > 0 and 0 < result.memory_mb[0] <= result.memory_mb[2]
    assert "a group" in console.table(result) and list(tmp_path.iterdir()) == []


def test_what_was_missed_is_named() -> None:
    tail = console.Tail(seconds=10, updates=40, gap_s=0.3, sent=100_000, came=100_000, shown=200, cpu_s=1)
    good = console.Result({"overview": [(100, 200), (900, 2_000), (110, 210)]}, (60, 70, 80), tail, (0, 0))

    assert console.misses(good) == []
    bad = dataclasses.replace(
        good, pages={"overview": [(301, 1_001)]}, memory_mb=(1, 1, 151), tail=dataclasses.replace(tail, updates=20, came=99_999)
    )
    assert [each.partition(":")[0] for each in console.misses(bad)] == ["overview", "overview", "memory", "tail", "tail"]
