"""What is left of partitions that are deleted leaves memory in turns."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, cast

from broker.replication.removals import FREED_PER_TURN, PartitionRemovals
from storage.log_directory import CheckpointWriter, Departure, RemovalWork
from storage.log_manager import LogManager
from tests.broker.replication.world import ManualExecutor, World
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for


@stands_for(CheckpointWriter)
class Writer:
    path = Path()

    def remove(self, work: RemovalWork) -> None:
        work.is_done = True


@stands_for(LogManager, own=("work",))
class Logs:
    """Whatever is deleted, thousands of directories leave."""

    def __init__(self) -> None:
        departures = [Departure(("large", index), Path(), Path()) for index in range(3 * FREED_PER_TURN)]
        self.work = RemovalWork(cast("CheckpointWriter", Writer()), 1, departures)

    def delete_logs_in_pieces(self, partitions: Iterable[tuple[str, int]]) -> Generator[None, None, list[RemovalWork]]:
        yield
        return [self.work]

    def removed(self, work: RemovalWork) -> None:
        assert len(work.departures) == 3 * FREED_PER_TURN


def test_what_removed_a_large_topic_is_freed_in_turns(tmp_path: Path) -> None:
    """Thousands of departures, each with two paths, take 17 ms at once."""
    world = World(tmp_path)
    world.create_topic("large")
    clock, executor, logs, failures = ManualClock(), ManualExecutor(), Logs(), list[Any]()
    removals = PartitionRemovals(
        clock,
        cast("LogManager", logs),
        executor,
        on_closed=lambda partition: None,
        on_left=lambda: None,
        on_failure=lambda path, error: failures.append(error),
    )

    removals.add([world.partition("large", 0)])
    clock.advance(1)
    executor.run()
    left_at_once = len(logs.work.departures)
    clock.advance(1)

    assert left_at_once == 2 * FREED_PER_TURN
    assert (logs.work.departures, clock.pending_timers, failures) == ([], [], [])
