"""OffsetForLeaderEpoch: where each epoch ends, over a real log."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.handlers.produce_fetch import offset_for_leader_epoch
from protocol import codec
from protocol.errors import ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.replication.world import World, batch, context

KEY = 23


def ask(world: World, epoch: int, *, current: int = -1, index: int = 0, version: int = 4) -> tuple[int, int, int]:
    """(error code, epoch, end offset), after a round trip through the encoding."""
    asked = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="a", partitions=[asked])])
    response = offset_for_leader_epoch.build(world.services())(context(KEY, version), request)
    decoded = codec.decode(OffsetForLeaderEpochResponse, version, codec.encode(response, version))[0]
    answer = decoded.topics[0].partitions[0]
    assert answer.partition == index
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Epoch 2 wrote offsets 0 and 1, epoch 4 offset 2; the leader is this broker again, in epoch 4."""
    world = World(tmp_path)
    world.create_topic("a", leader_epoch=2)
    world.produce("a", batch("0", "1"))
    world.change_partition("a", leader=-1)
    world.change_partition("a", leader=1)
    world.produce("a", batch("2"))
    return world


@pytest.mark.parametrize("version", [2, 3, 4])
def test_latest_epoch_ends_at_the_log_end(world: World, version: int) -> None:
    assert ask(world, 4, version=version) == (0, 4, 3)


def test_older_epoch_ends_where_the_next_one_begins(world: World) -> None:
    assert ask(world, 2) == (0, 2, 2)


def test_epoch_between_two_answers_the_one_below(world: World) -> None:
    assert ask(world, 3) == (0, 2, 2)


@pytest.mark.parametrize("epoch", [5, -1])
def test_end_of_an_unknown_epoch_is_undefined(world: World, epoch: int) -> None:
    assert ask(world, epoch) == (0, -1, -1)


def test_current_leader_epoch_is_checked(world: World) -> None:
    assert ask(world, 4, current=4) == (0, 4, 3)
    assert ask(world, 4, current=3) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert ask(world, 4, current=5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


def test_only_the_leader_answers(world: World) -> None:
    world.change_partition("a", leader=-1)

    assert ask(world, 4) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
    assert ask(world, 4, index=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
