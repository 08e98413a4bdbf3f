"""When the broker's scheduled tasks run: Kafka's intervals and first delay, on a clock stepped by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from broker.background.background import Background
from broker.replication.replica_manager import ReplicaManager
from config.server_rules import server_config
from storage.log_manager import LogManager
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

TURNS_PER_STEP = 20  # of the loop: each task begins in one of its own


@stands_for(LogManager, ReplicaManager)
class Managers:
    """Neither has any log; `note` is told what they are asked."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def each_log(self) -> Iterator[Any]:
        self._note("retention")
        return iter(())

    def take_checkpoints(self) -> list[Any]:
        self._note("checkpoint")
        return []

    def each_partition(self) -> Iterator[Any]:
        self._note("look for records to flush")
        return iter(())

    def request_flush(self, partitions: Any) -> None:
        list(partitions)

    def when_flushed(self, callback: Callable[[], None]) -> None:
        callback()

    def take_due_deletions(self, now_ms: int) -> None:
        pass

    def remove_expired_producers(self, now_ms: int) -> None:
        self._note("expiry")


class Tasks:
    """A broker's tasks: keeps what its managers are asked to do, with the second they were asked in."""

    def __init__(self, **texts: str) -> None:
        self.clock = ManualClock()
        self.done: list[tuple[str, float]] = []
        config = server_config({name.replace("_", "."): text for name, text in texts.items()})
        self.managers: Any = Managers(self._note)
        self.background = Background(config, self.clock, self.managers, self.managers, self._run_blocking)

    async def _run_blocking(self, function: Callable[[], Any]) -> None:
        function()

    def _note(self, task: str) -> None:
        self.done.append((task, self.clock.monotonic_ms() / 1000))

    async def run(self, seconds: float, step_ms: int = 500) -> None:
        """Let the time pass in steps, with what they do run between them."""
        self.background.start()
        for _ in range(int(seconds * 1000 / step_ms)):
            self.clock.advance(step_ms)
            for _ in range(TURNS_PER_STEP):
                await asyncio.sleep(0)
        await self.background.stop()

    def times(self, task: str) -> list[float]:
        return [second for name, second in self.done if name == task]


# The other tasks that write checkpoints or look for records to flush, out of the way.
QUIET = {
    "replica.high.watermark.checkpoint.interval.ms": "900000",
    "log.flush.offset.checkpoint.interval.ms": "900000",
    "log.flush.start.offset.checkpoint.interval.ms": "900000",
}


async def test_retention_is_first_enforced_after_the_initial_delay_then_at_its_interval() -> None:
    tasks = Tasks(log_initial_task_delay_ms="2000", log_retention_check_interval_ms="3000")

    await tasks.run(9)

    assert tasks.times("retention") == [2, 5, 8]


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
    tasks = Tasks(**{key.replace(".", "_"): text for key, text in texts.items()})

    await tasks.run(9)

    first_of_others = [1.0] * sum(key != name and key.startswith("log.flush") for key in QUIET)
    assert sorted(tasks.times("checkpoint")) == sorted([*first_of_others, *expected])


async def test_an_interval_of_zero_is_a_task_done_once() -> None:
    texts = {**QUIET, "log.initial.task.delay.ms": "1000", "log.flush.start.offset.checkpoint.interval.ms": "0"}
    tasks = Tasks(**{key.replace(".", "_"): text for key, text in texts.items()})

    await tasks.run(60)

    assert tasks.times("checkpoint") == [1, 1]


@pytest.mark.parametrize(("interval_ms", "expected"), [("500", 4), ("0", 2), ("9223372036854775807", 2), ("5000", 2)])
async def test_records_due_for_a_flush_are_looked_for_each_second_or_more_often(interval_ms: str, expected: int) -> None:
    tasks = Tasks(log_flush_scheduler_interval_ms=interval_ms, log_initial_task_delay_ms="900000")

    await tasks.run(2)

    assert len(tasks.times("look for records to flush")) == expected


async def test_tasks_that_fall_due_together_begin_in_turns_of_their_own() -> None:
    """Each asks each partition or log something, up to 16 ms for 9,500 of them."""
    minute = dict.fromkeys(QUIET, "60000")
    texts = {**minute, "log.retention.check.interval.ms": "60000", "log.initial.task.delay.ms": "60000"}
    tasks = Tasks(**{key.replace(".", "_"): text for key, text in texts.items()})
    tasks.background.start()
    tasks.clock.advance(60_000)
    counts = [0]
    for _ in range(TURNS_PER_STEP):
        await asyncio.sleep(0)
        counts.append(len(tasks.done))
    await tasks.background.stop()

    assert max(after - before for before, after in pairwise(counts)) <= 2  # a flush and its checkpoint
    assert tasks.times("retention") == [60] and tasks.times("checkpoint") == [60, 60, 60]
