"""What is left of partitions that are deleted leaves memory in turns."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, cast

from broker.replication.metadata.removals import CLOSED_PIECE_PARTITIONS, FREED_PER_TURN, PartitionRemovals
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


@stands_for(LogManager, own=("noting_pieces_count", "work"))
class Logs:
    """Whatever is deleted, thousands of directories leave."""

    def __init__(self) -> None:
        departures = [Departure(("large", index), Path(), Path()) for index in range(3 * FREED_PER_TURN)]
        self.noting_pieces_count = 0
        self.work = RemovalWork(cast("CheckpointWriter", Writer()), 1, departures)

    def delete_logs_in_pieces(self, partitions: Iterable[tuple[str, int]]) -> Generator[None, None, list[RemovalWork]]:
        yield
        return [self.work]

    def removed_in_pieces(self, work: RemovalWork) -> Generator[None, None, None]:
        yield from [None] * self.noting_pieces_count
        assert len(work.departures) == 3 * FREED_PER_TURN


def test_what_removed_a_large_topic_is_freed_in_turns(tmp_path: Path) -> None:
    """Thousands of departures, each with two paths, take 17 ms at once."""
    world = World(tmp_path)
    world.create_topic("large")
    clock, executor, logs, failures = ManualClock(), ManualExecutor(), Logs(), list[Any]()
    removals = _removals(clock, logs, executor, failures)

    removals.add([world.partition("large", 0)])
    clock.advance(1)
    executor.run()
    left_at_once = len(logs.work.departures)
    clock.advance(1)

    assert left_at_once == 2 * FREED_PER_TURN
    assert (logs.work.departures, clock.pending_timers, failures) == ([], [], [])


def test_partitions_of_a_large_topic_are_deleted_at_once_and_few_of_them_closed(tmp_path: Path) -> None:
    """Marking them has taken a share of the turn."""
    world = World(tmp_path)
    world.create_topic("large", partitions=CLOSED_PIECE_PARTITIONS + 1)
    world.clock.advance(1000)
    partitions = [world.partition("large", index) for index in range(CLOSED_PIECE_PARTITIONS + 1)]
    executor = ManualExecutor()
    removals = _removals(world.clock, Logs(), executor, [])

    removals.add(partitions)
    started_at_once = list(executor.pending)
    world.clock.advance(1)

    assert all(partition.is_deleted for partition in partitions)
    assert started_at_once == []
    assert len(executor.pending) == 1


def test_directories_have_left_when_the_last_piece_of_them_is_noted(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("large")
    clock, executor, logs = ManualClock(), ManualExecutor(), Logs()
    logs.noting_pieces_count = 2
    removals = _removals(clock, logs, executor, [])
    left: list[int] = []
    removals.add([world.partition("large", 0)])
    clock.advance(1)
    removals.when_left(lambda: left.append(len(logs.work.departures)))

    executor.run()
    left_early = list(left)
    clock.advance(1)

    assert left_early == []
    assert left == [3 * FREED_PER_TURN]


def _removals(clock: ManualClock, logs: Logs, executor: ManualExecutor, failures: list[Any]) -> PartitionRemovals:
    return PartitionRemovals(
        clock,
        cast("LogManager", logs),
        executor,
        on_closed=lambda partition: None,
        on_left=lambda: None,
        on_failure=lambda path, error: failures.append(error),
    )
