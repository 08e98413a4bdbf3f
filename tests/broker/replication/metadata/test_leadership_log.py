"""What an operator reads of a broker's partitions."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker.observability.limited_log import PARTITION_LINES_INTERVAL_MS, PARTITION_LINES_MAX
from tests.broker.replication.world import World, batch

PARTITIONS = 100


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> World:
    caplog.set_level(logging.INFO, logger="barnabas.replication")
    world = World(tmp_path)
    world.create_topic("before")
    return world


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines since the last look."""
    lines = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return lines


def test_leadership_that_is_taken_and_lost_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.create_topic("a", replicas=(1, 2), leader_epoch=4)
    assert told(caplog) == ["leader of a-0 in epoch 4, ISR [1, 2], from offset 0"]
    world.produce("a", batch("x", "y"))

    world.change_partition("a", leader=2)
    assert told(caplog) == ["no longer leader of a-0: broker 2 leads epoch 5"]

    world.change_partition("a", leader=1, isr=[1])
    assert told(caplog) == ["leader of a-0 in epoch 6, ISR [1], from offset 2"]

    world.change_partition("a", leader=-1)
    assert told(caplog) == ["no longer leader of a-0: nobody leads epoch 7"]


def test_isr_that_the_controller_changes_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.create_topic("a", replicas=(1, 2, 3))
    told(caplog)

    world.change_partition("a", isr=[1, 2])

    assert told(caplog) == ["ISR of a-0 is [1, 2], it was [1, 2, 3]"]


def test_replica_that_moves_away_is_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.create_topic("a", replicas=(1, 2), leader=2)
    told(caplog)

    world.change_partition("a", replicas=[2, 3], isr=[2])

    assert told(caplog) == ["a-0 moved away, its replicas are [2, 3]"]


def test_partition_without_other_replicas_is_not_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """On a single node every line would say the same."""
    world.create_topic("a", partitions=3)
    world.change_partition("a", leader=1)

    assert told(caplog) == []


def test_many_at_once_are_a_few_lines_and_a_count(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.create_topic("a", partitions=PARTITIONS, replicas=(1, 2))

    world.clock.advance(PARTITION_LINES_INTERVAL_MS)

    lines = told(caplog)
    assert len(lines) == PARTITION_LINES_MAX + 1
    assert lines[-1] == f"partitions led from here: {PARTITIONS - PARTITION_LINES_MAX} more lines were left out in the last 10 s"
