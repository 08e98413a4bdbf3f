"""Logs that are open under the name of a partition that is not theirs: the topic was deleted and made anew, or the replica moved away,
after the logs had been opened and before this broker followed the metadata."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from config.topic import LogConfig
from protocol.errors import ErrorCode
from storage.log_manager import LogManager
from tests.broker.replication.world import NODE_ID, World, batch, values

OLD_ID, NEW_ID = bytes(15) + b"o", bytes(15) + b"n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A broker that starts with a log of topic a, of `OLD_ID`, which has one record."""
    for _ in range(2):
        logs = LogManager([tmp_path / "data"], random_source=random.Random(1))
        logs.open(config_of=lambda name: LogConfig(), now_ms=0)
        world = World(tmp_path, logs=logs)
        if not logs.logs():
            world.create_topic("a", topic_id=OLD_ID)
            world.produce("a", batch("old"))
            logs.close_clean()
    return world


def strays(tmp_path: Path) -> list[str]:
    return [path.name.partition(".")[0] for path in (tmp_path / "data").glob("*-stray")]


def test_the_log_of_the_same_topic_is_taken(world: World, tmp_path: Path) -> None:
    world.create_topic("a", topic_id=OLD_ID)
    world.replica_manager.end_loading()

    assert values(world.fetch("a", 0)[0].records) == ["old"]
    assert strays(tmp_path) == []


@pytest.mark.parametrize("leader", [NODE_ID, 2])
def test_the_log_of_a_deleted_topic_is_not_taken_for_its_successors(world: World, tmp_path: Path, leader: int) -> None:
    world.create_topic("a", topic_id=NEW_ID, replicas=(NODE_ID, 2), leader=leader)
    world.replica_manager.end_loading()

    log = world.partition("a").log
    assert (log.topic_id, log.log_end_offset) == (NEW_ID, 0)
    assert strays(tmp_path) == ["a-0"]


def test_a_log_is_not_taken_for_a_topics_that_is_made_anew_later(world: World, tmp_path: Path) -> None:
    """The topic is gone when this broker begins to follow, and no delta tells of it."""
    world.create_topic("b")
    world.replica_manager.end_loading()
    world.create_topic("a", topic_id=NEW_ID)

    assert [answer.error_code for answer in world.produce("a", batch("new"))] == [ErrorCode.NONE]
    assert values(world.fetch("a", 0)[0].records) == ["new"]
    assert strays(tmp_path) == ["a-0"]


def test_a_replica_that_has_moved_away_begins_anew_when_it_comes_back(world: World, tmp_path: Path) -> None:
    """What its old log has below the leader's log start, or from before an unclean election, is no part of the partition any more."""
    world.create_topic("a", topic_id=OLD_ID, replicas=(2, 3), leader=2)
    world.replica_manager.end_loading()

    assert strays(tmp_path) == ["a-0"]

    world.change_partition("a", replicas=[2, 3, NODE_ID], adding_replicas=[NODE_ID])
    world.clock.advance(1)

    assert world.partition("a").log.log_end_offset == 0
