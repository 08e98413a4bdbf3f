"""Partitions of a large topic are deleted at once; their logs are closed in slices of the loop's time."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, cast

from broker.loop.turns import SLICE_US
from broker.replication.metadata.removals import PartitionRemovals
from storage.log_directory import CheckpointWriter, RemovalWork
from storage.log_manager import LogManager
from tests.broker.replication.world import ManualExecutor, World
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

PARTITIONS = 3


@stands_for(CheckpointWriter)
class Writer:
    path = Path()

    def remove(self, work: RemovalWork) -> None:
        work.is_done = True


@stands_for(LogManager, own=("removed_count", "work"))
class Logs:
    """It takes a whole slice to close a log."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.work = RemovalWork(cast("CheckpointWriter", Writer()), 1, [])
        self.removed_count = 0

    def delete_logs(self, partitions: Iterable[tuple[str, int]]) -> Generator[None, None, list[RemovalWork]]:
        for _ in partitions:
            self._clock.stall(SLICE_US / 1000)
            yield
        return [self.work]

    def removed(self, work: RemovalWork) -> None:
        self.removed_count += 1


class Removing:
    """The removal of a topic; `turn` is one of the loop."""

    def __init__(self, directory: Path) -> None:
        world = World(directory)
        world.create_topic("large", partitions=PARTITIONS)
        self.partitions = [world.partition("large", index) for index in range(PARTITIONS)]
        self.clock, self.executor = ManualClock(), ManualExecutor()
        self.logs = Logs(self.clock)
        self.closed: list[int] = []
        self.failures: list[Any] = []
        self.removals = PartitionRemovals(
            self.clock,
            cast("LogManager", self.logs),
            self.executor,
            on_closed=lambda partition: self.closed.append(partition.partition),
            on_left=lambda: None,
            on_failure=lambda path, error: self.failures.append(error),
        )
        self.removals.add(self.partitions)


def test_partitions_of_a_large_topic_are_deleted_at_once_and_their_logs_closed_in_slices(tmp_path: Path) -> None:
    removing = Removing(tmp_path)

    are_deleted = [partition.is_deleted for partition in removing.partitions]
    started_at_once = list(removing.executor.pending)
    started_ms = removing.clock.monotonic_ms()
    removing.clock.advance(100)

    assert are_deleted == [True] * PARTITIONS
    assert started_at_once == []
    assert removing.closed == [0, 1, 2]
    assert len(removing.executor.pending) == 1
    assert removing.clock.monotonic_ms() - started_ms >= PARTITIONS * SLICE_US / 1000


def test_directories_have_left_when_their_removal_is_noted(tmp_path: Path) -> None:
    removing = Removing(tmp_path)
    left: list[int] = []
    removing.removals.when_left(lambda: left.append(removing.logs.removed_count))

    removing.clock.advance(100)
    left_early = list(left)
    removing.executor.run()

    assert left_early == []
    assert (left, removing.failures) == ([1], [])


def test_what_is_not_closed_yet_is_closed_by_a_stop(tmp_path: Path) -> None:
    removing = Removing(tmp_path)
    removing.clock.advance(0)

    removing.removals.stop()

    assert removing.closed == [0, 1, 2]
    assert len(removing.executor.pending) == 1
