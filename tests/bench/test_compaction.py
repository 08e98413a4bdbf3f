"""`python -m bench compaction` at a hundredth of a thousandth of its volume: it compares every key, and notices one that is wrong."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from bench import compaction
from bench.clients.keyed_load import NEVER, load, save
from bench.servers import BARNABAS
from bench.session import MeasurementError

GIGABYTES, KEYS, RATE = 0.01, 500, 100


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "BASELINE_S", 0.5)


def test_a_run_compacts_and_compares_every_key(tmp_path: Path) -> None:
    (result,) = compaction.run([BARNABAS], gigabytes=GIGABYTES, keys=KEYS, pairs=1, rate=RATE, data_dir=tmp_path)

    records = int(GIGABYTES * 1e9 / compaction.VALUE_SIZE)
    assert result.product == "barnabas"
    assert KEYS <= result.records_left < records / 2
    assert result.dirty_gb == pytest.approx(GIGABYTES, rel=0.2)
    assert result.beside["records"] > 0
    assert len(result.memory_mb) > 1, "the cleaner has a process of its own"
    assert list(tmp_path.iterdir()) == []


def test_a_key_with_another_value_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_otherwise(path: Path) -> array[int]:
        last = load(path)
        if path.name == "after.last":
            last[7] -= 1
        return last

    monkeypatch.setattr(compaction, "load", load_otherwise)

    with pytest.raises(MeasurementError, match="1 keys differ"):
        compaction.run([BARNABAS], gigabytes=GIGABYTES, keys=KEYS, pairs=1, rate=RATE, data_dir=tmp_path)


def test_what_was_sent_later_lies_over_what_was_sent_before(tmp_path: Path) -> None:
    save(array("q", [1, 2, NEVER]), tmp_path / "first")
    expected = load(tmp_path / "first")

    compaction.overlay(expected, array("q", [NEVER, 5, 6]), array("q", [7, NEVER, NEVER]))

    assert list(expected) == [7, 5, 6]
