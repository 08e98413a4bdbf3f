"""The lines before the worker threads: who waits for whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.deferred import Deferred
from broker.replication import batch_preparation
from broker.replication.batch_preparation import BatchPreparer
from protocol.compression import Compression
from protocol.framing import keep
from protocol.records import SimpleRecord, build_batch
from storage.validation import RECORDS_PER_STEP
from tests.broker.replication.world import ManualExecutor, World
from tests.support.clock import WALL_START_MS

LONG = 2 * batch_preparation.SHORT_SLICES_MAX * RECORDS_PER_STEP
SHORT = 10


class Lines:
    """A preparer whose slices are one step long and run when the test says so; topic `c` is compacted."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(batch_preparation, "SLICE_NS", 0)
        monkeypatch.setattr(batch_preparation, "SHORT_RECORDS_MAX", SHORT)
        self.world = World(root)
        self.world.create_topic("c", cleanup_policy="compact")
        self.executor = ManualExecutor()
        self.preparer = BatchPreparer(self.world.replica_manager, self.executor)

    def prepare(self, records_count: int) -> Deferred:
        return self.preparer.prepare([self.entry(records_count)], now_ms=WALL_START_MS, is_zstd_allowed=True)

    def entry(self, records_count: int) -> Any:
        records = [SimpleRecord(b"k", b"", (), WALL_START_MS)] * records_count
        return "c", 0, keep(memoryview(build_batch(records, compression=Compression.LZ4)))

    def run(self, *answers: Deferred) -> int:
        """Run slices until these are answered; how many rounds it took, one slice of each line a round."""
        rounds = 0
        while not all(answer.is_done for answer in answers):
            self.executor.run()
            rounds += 1
        return rounds


def test_a_short_check_does_not_wait_for_long_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(tmp_path, monkeypatch)
    alone = lines.run(lines.prepare(SHORT))
    long = [lines.prepare(LONG) for _ in range(20)]

    rounds = lines.run(lines.prepare(SHORT))

    assert rounds <= alone + 1
    assert not any(answer.is_done for answer in long)


def test_long_checks_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(tmp_path, monkeypatch)
    longest, long = lines.prepare(4 * LONG), lines.prepare(LONG)

    lines.run(long)

    assert not longest.is_done
    lines.run(longest)


def test_a_check_that_looked_short_moves_to_the_long_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(tmp_path, monkeypatch)
    monkeypatch.setattr(batch_preparation, "SHORT_RECORDS_MAX", LONG)
    alone = lines.run(lines.prepare(SHORT))
    looked_short = [lines.prepare(LONG) for _ in range(3)]
    for _ in range(len(looked_short) * batch_preparation.SHORT_SLICES_MAX):
        lines.executor.run()

    rounds = lines.run(lines.prepare(SHORT))

    assert rounds == alone
    assert not any(answer.is_done for answer in looked_short)


def test_checks_of_connections_that_are_gone_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(tmp_path, monkeypatch)
    gone = [lines.prepare(LONG) for _ in range(3)]

    for answer in gone:
        answer.abandon()
    for _ in range(4):
        lines.executor.run()

    assert not lines.executor.pending


def test_an_exception_that_nobody_foresaw_is_told_and_the_line_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Lines(tmp_path, monkeypatch)
    broken, next_one = lines.prepare(SHORT), lines.prepare(SHORT)

    lines.executor.run(MemoryError())

    assert isinstance(broken.value, MemoryError)
    lines.run(next_one)
    assert [len(batch) for _, _, batch in next_one.take()]
