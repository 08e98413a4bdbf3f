"""When the broker's chores run: Kafka's intervals and first delay, on a clock stepped by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from itertools import pairwise
from typing import Any

import pytest

from broker.background.background import PARTITIONS_PER_TURN, Background, ChoreTurns
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from config.server_rules import server_config
from storage.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

TURNS_PER_STEP = 20  # of the loop: each chore has one of its own


@stands_for(Partition, own=("flush_is_due",))
class FlushedPartition:
    """And its log: asked in vain whether there is something to flush."""

    is_deleted = False

    def __init__(self) -> None:
        self.asked_count = 0

    @property
    def log(self) -> FlushedPartition:
        return self

    def flush_is_due(self, now_ms: int) -> bool:
        self.asked_count += 1
        return False


@stands_for(LogManager, ReplicaManager, own=("hosted", "listed_count"))
class Managers:
    """Neither has any log; `note` is told what they are asked."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.hosted: list[Any] = []
        self.listed_count = 0

    def each_log(self) -> Iterator[Any]:
        self._note("retention")
        return iter(())

    def take_checkpoints_in_pieces(self) -> Generator[None, None, list[Any]]:
        self._note("checkpoint")
        yield
        return []

    def each_partition(self) -> Iterator[Any]:
        self._note("look for records to flush")
        for partition in self.hosted:
            self.listed_count += 1
            yield partition

    def request_flush(self, partitions: Any) -> None:
        list(partitions)

    def when_flushed(self, callback: Callable[[], None]) -> None:
        callback()

    def take_due_deletions_in_pieces(self, now_ms: int) -> Generator[None, None, None]:
        yield

    def remove_expired_producers(self, now_ms: int) -> None:
        self._note("expiry")


class Chores:
    """A broker's chores: keeps what its managers are asked to do, with the second they were asked in."""

    def __init__(self, **texts: str) -> None:
        self.clock = ManualClock()
        self.done: list[tuple[str, float]] = []
        config = server_config({name.replace("_", "."): text for name, text in texts.items()})
        self.managers: Any = Managers(self._note)
        self.background = Background(config, self.clock, self.managers, self.managers, self._run_blocking)

    async def _run_blocking(self, function: Callable[[], Any]) -> None:
        function()

    def _note(self, chore: str) -> None:
        self.done.append((chore, self.clock.monotonic_ms() / 1000))

    async def run(self, seconds: float, step_ms: int = 500) -> None:
        """Let the time pass in steps, with the chores' tasks run between them."""
        self.background.start()
        for _ in range(int(seconds * 1000 / step_ms)):
            self.clock.advance(step_ms)
            for _ in range(TURNS_PER_STEP):
                await asyncio.sleep(0)
        await self.background.stop()

    def times(self, chore: str) -> list[float]:
        return [second for name, second in self.done if name == chore]


# The other chores that write checkpoints or look for records to flush, out of the way.
QUIET = {
    "replica.high.watermark.checkpoint.interval.ms": "900000",
    "log.flush.offset.checkpoint.interval.ms": "900000",
    "log.flush.start.offset.checkpoint.interval.ms": "900000",
}


async def test_retention_is_first_enforced_after_the_initial_delay_then_at_its_interval() -> None:
    chores = Chores(log_initial_task_delay_ms="2000", log_retention_check_interval_ms="3000")

    await chores.run(9)

    assert chores.times("retention") == [2, 5, 8]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("log.flush.start.offset.checkpoint.interval.ms", [1, 4, 7]),
        ("log.flush.offset.checkpoint.interval.ms", [1, 4, 7]),
        ("replica.high.watermark.checkpoint.interval.ms", [3, 6, 9]),
    ],
)
async def test_checkpoints_are_written_at_each_interval_that_asks_for_them(name: str, expected: list[float]) -> None:
    texts = {**QUIET, "log.initial.task.delay.ms": "1000", name: "3000"}
    chores = Chores(**{key.replace(".", "_"): text for key, text in texts.items()})

    await chores.run(9)

    first_of_others = [1.0] * sum(key != name and key.startswith("log.flush") for key in QUIET)
    assert sorted(chores.times("checkpoint")) == sorted([*first_of_others, *expected])


async def test_an_interval_of_zero_is_a_chore_done_once() -> None:
    texts = {**QUIET, "log.initial.task.delay.ms": "1000", "log.flush.start.offset.checkpoint.interval.ms": "0"}
    chores = Chores(**{key.replace(".", "_"): text for key, text in texts.items()})

    await chores.run(60)

    assert chores.times("checkpoint") == [1, 1]


@pytest.mark.parametrize(("interval_ms", "expected"), [("500", 4), ("0", 2), ("9223372036854775807", 2), ("5000", 2)])
async def test_records_due_for_a_flush_are_looked_for_each_second_or_more_often(interval_ms: str, expected: int) -> None:
    chores = Chores(log_flush_scheduler_interval_ms=interval_ms, log_initial_task_delay_ms="900000")

    await chores.run(2)

    assert len(chores.times("look for records to flush")) == expected


async def test_many_partitions_are_asked_in_turns_whether_a_flush_is_due() -> None:
    chores = Chores()
    hosted = [FlushedPartition() for _ in range(3 * PARTITIONS_PER_TURN)]
    chores.managers.hosted = hosted
    chores.background.start()
    chores.clock.advance(1000)
    asked: list[tuple[int, int]] = []
    for _ in range(TURNS_PER_STEP):
        await asyncio.sleep(0)
        asked.append((chores.managers.listed_count, sum(partition.asked_count for partition in hosted)))
    await chores.background.stop()

    assert sorted(set(asked)) == [(count * PARTITIONS_PER_TURN, count * PARTITIONS_PER_TURN) for count in (1, 2, 3)]


async def test_chores_that_fall_due_together_have_a_turn_each() -> None:
    """Each asks each partition or log something: six of them in one turn held the loop for several milliseconds."""
    minute = dict.fromkeys(QUIET, "60000")
    texts = {**minute, "log.retention.check.interval.ms": "60000", "log.initial.task.delay.ms": "60000"}
    chores = Chores(**{key.replace(".", "_"): text for key, text in texts.items()})
    chores.background.start()
    chores.clock.advance(60_000)
    counts = [0]
    for _ in range(TURNS_PER_STEP):
        await asyncio.sleep(0)
        counts.append(len(chores.done))
    await chores.background.stop()

    assert max(after - before for before, after in pairwise(counts)) <= 2  # a flush and its checkpoint
    assert chores.times("retention") == [60] and chores.times("checkpoint") == [60, 60, 60]


async def test_a_long_chore_and_others_take_turns() -> None:
    turns = ChoreTurns()
    done: list[str] = []

    async def work(name: str, pieces_count: int) -> None:
        for _ in range(pieces_count):
            await turns.next()
            done.append(name)

    await asyncio.gather(work("long", 4), work("short", 2))

    assert done == ["long", "long", "short", "long", "short", "long"]
