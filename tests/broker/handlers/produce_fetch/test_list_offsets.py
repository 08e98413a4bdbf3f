"""ListOffsets: both ends, timestamps and the special ones, over real logs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.produce_fetch import list_offsets
from protocol import codec
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from storage.page_cache import ColdRead
from tests.broker.loop.turn_loop import TurnLoop
from tests.broker.replication.world import ManualExecutor, World, batch, context
from tests.support.clock import WALL_START_MS

LIST_OFFSETS_KEY = 2
NOT_FOUND = (0, -1, -1, -1)


def ask_all(world: World, *timestamps: int, version: int = 10, topic: str = "a", epoch: int = -1, **fields: Any) -> ListOffsetsResponse:
    """Asks for partition 0 at the first timestamp, partition 1 at the second, and so on."""
    partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
        for index, timestamp in enumerate(timestamps)
    ]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=partitions)], **({"replica_id": -1} | fields))
    response = list_offsets.build(world.services())(context(LIST_OFFSETS_KEY, version), request)
    assert isinstance(response, ListOffsetsResponse)
    return response


def ask(world: World, timestamp: int, **fields: Any) -> tuple[int, int, int, int]:
    """(error code, timestamp, offset, leader epoch)"""
    return facts(ask_all(world, timestamp, **fields).topics[0].partitions[0])


def facts(partition: ListOffsetsPartitionResponse) -> tuple[int, int, int, int]:
    return partition.error_code, partition.timestamp, partition.offset, partition.leader_epoch


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Topic a with records at offsets 0, 1 and 2, ten milliseconds apart; the leader epoch is 4."""
    world = World(tmp_path)
    world.create_topic("a", leader_epoch=4)
    for index in range(3):
        world.produce("a", batch(str(index), timestamp=WALL_START_MS + 10 * index))
    return world


def test_both_ends(world: World) -> None:
    assert ask(world, -1) == (0, -1, 3, 4)
    assert ask(world, -2) == (0, -1, 0, 4)


def test_earliest_is_the_log_start_offset(world: World) -> None:
    world.partition("a").log.set_log_start_offset(2)

    assert ask(world, -2) == (0, -1, 2, 4)


@pytest.mark.parametrize(("after_ms", "expected"), [(-5, 0), (0, 0), (1, 1), (10, 1), (20, 2)])
def test_timestamp_finds_the_first_record_at_or_after_it(world: World, after_ms: int, expected: int) -> None:
    found = ask(world, WALL_START_MS + after_ms)

    assert found == (0, WALL_START_MS + 10 * expected, expected, 4)


def test_timestamp_after_all_records_finds_nothing_without_an_error(world: World) -> None:
    assert ask(world, WALL_START_MS + 21) == NOT_FOUND


def test_max_timestamp_finds_its_record(world: World) -> None:
    world.produce("a", batch("late", timestamp=WALL_START_MS + 5))

    assert ask(world, -3) == (0, WALL_START_MS + 20, 2, 4)


def test_without_tiering_the_local_log_is_the_log_and_the_tiered_one_is_empty(world: World) -> None:
    assert ask(world, -4) == ask(world, -2)
    assert ask(world, -5) == NOT_FOUND
    assert ask(world, -6, version=11) == NOT_FOUND


def test_a_local_log_that_starts_later_than_the_log_says_so(world: World) -> None:
    log = world.partition("a").log
    log.truncate_fully_and_start_at(3, log_start_offset=1)
    log.assign_leader_epoch(4)

    assert ask(world, -2)[2] == 1
    assert ask(world, -4) == (0, -1, 3, 4)


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (-(2**63), 11)])
def test_special_timestamp_is_unsupported_before_its_version(world: World, timestamp: int, version: int) -> None:
    assert ask(world, timestamp, version=version) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


@pytest.mark.parametrize("version", range(1, 12))
def test_response_can_be_encoded_in_every_version(world: World, version: int) -> None:
    response = ask_all(world, -1, -1, version=version)

    decoded = codec.decode(ListOffsetsResponse, version, codec.encode(response, version))[0]

    codes = [(partition.error_code, partition.offset) for partition in decoded.topics[0].partitions]
    assert codes == [(0, 3), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_partition_named_twice_is_refused_once(world: World) -> None:
    asked = ListOffsetsTopic(name="a", partitions=[ListOffsetsPartition(timestamp=-1), ListOffsetsPartition(timestamp=-2)])
    request = ListOffsetsRequest(replica_id=-1, topics=[asked])

    response = list_offsets.build(world.services())(context(LIST_OFFSETS_KEY, 7), request)

    assert [facts(partition) for partition in response.topics[0].partitions] == [(ErrorCode.INVALID_REQUEST, -1, -1, -1)]  # type: ignore[union-attr]


def test_leader_epoch_is_checked(world: World) -> None:
    assert ask(world, -1, epoch=3)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(world, -1, epoch=5)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_consumer_sees_the_high_watermark_and_a_replica_the_log_end(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", replicas=(1, 2))
    world.produce("a", batch("x"))

    assert ask(world, -1)[2] == 0
    assert ask(world, -1, replica_id=2)[2] == 1
    assert ask(world, WALL_START_MS) == NOT_FOUND


def test_end_is_not_available_while_the_high_watermark_lags_behind_the_epoch(tmp_path: Path) -> None:
    """KIP-207: after an election the end would seem to go back."""
    world = World(tmp_path)
    world.create_topic("a", replicas=(1, 2))
    world.produce("a", batch("x"))
    world.change_partition("a", leader=2)
    world.change_partition("a", leader=1)

    assert ask(world, -1)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(world, WALL_START_MS)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(world, -1, version=4)[0] == ErrorCode.LEADER_NOT_AVAILABLE
    assert ask(world, -2)[0] == 0
    world.follower_fetch(2, "a", 1)
    assert ask(world, -1)[:3] == (0, -1, 1)


def test_topics_are_answered_once_and_only_with_partitions(world: World) -> None:
    world.create_topic("b", partitions=2)
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
    topics = [
        ListOffsetsTopic(name="a"),
        ListOffsetsTopic(name="b", partitions=asked[:1]),
        ListOffsetsTopic(name="b", partitions=asked[1:]),
    ]

    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    response: Any = list_offsets.build(world.services())(context(LIST_OFFSETS_KEY, 7), request)

    assert [(topic.name, [partition.partition_index for partition in topic.partitions]) for topic in response.topics] == [("b", [0, 1])]


@pytest.mark.parametrize("isolation_level", [-1, 2])
def test_an_isolation_level_that_does_not_exist_is_an_error_of_every_partition(world: World, isolation_level: int) -> None:
    assert ask(world, -1, isolation_level=isolation_level) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1, -1)


# -- many partitions ---------------------------------------------------------------------------------------------------

MANY = 2 * list_offsets.PARTITIONS_AT_ONCE


def ask_many(world: World, *indexes: int, services: Any = None) -> tuple[Any, TurnLoop]:
    """The Deferred of an answer that takes several turns."""
    asked = [ListOffsetsPartition(partition_index=index, timestamp=WALL_START_MS) for index in indexes]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="m", partitions=asked)], replica_id=-1)
    loop = TurnLoop()
    answer = loop.turns.start(list_offsets.build(services or world.services())(context(LIST_OFFSETS_KEY, 10), request))
    assert not answer.is_done
    return answer, loop


@pytest.fixture
def many(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create_topic("m", partitions=MANY)
    for index in range(MANY):
        world.produce("m", batch("1"), index=index)
    return world


def test_many_partitions_are_answered_in_turns_each_once(many: World) -> None:
    answer, loop = ask_many(many, *range(MANY), 5, MANY)

    loop.run()

    expected = {5: ErrorCode.INVALID_REQUEST, MANY: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    found = [(partition.partition_index, partition.error_code) for partition in answer.take().topics[0].partitions]
    assert found == [(index, expected.get(index, ErrorCode.NONE)) for index in range(MANY + 1)]


def test_others_are_served_while_a_thread_brings_in_what_one_of_many_partitions_needs(
    many: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    missing = [ColdRead(os.open(tmp_path / "file", os.O_RDONLY), 0, 1)]
    find = list_offsets._find

    def find_cold_once(*arguments: Any) -> ListOffsetsPartitionResponse:
        if missing:
            raise missing.pop()
        return find(*arguments)

    monkeypatch.setattr(list_offsets, "_find", find_cold_once)
    executor = ManualExecutor()
    answer, loop = ask_many(many, *range(MANY), services=many.services()._replace(run_blocking=executor))
    loop.run()
    assert (answer.is_done, len(loop.turns)) == (False, 1)

    executor.run()
    loop.run()

    assert [facts(partition)[:3] for partition in answer.take().topics[0].partitions] == [(0, WALL_START_MS, 0)] * MANY
