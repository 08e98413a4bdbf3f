"""DeleteRecords over real logs: where they begin then, what is refused, and the wait for other replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.produce_fetch import delete_records
from broker.loop.deferred import Deferred
from broker.loop.turns import ELEMENTS_AT_ONCE
from protocol import codec
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.broker.replication.world import World, batch, context
from tests.support.turns import finished, run

KEY = 21
TIMEOUT_MS = 1000
TOPICS = 5_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create_topic("a")
    world.produce("a", batch("0", "1", "2"))
    return world


def send(world: World, topic: str, offset: int, *, index: int = 0, version: int = 2) -> Any:
    asked = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=TIMEOUT_MS)
    decoded = codec.decode(DeleteRecordsRequest, version, codec.encode(request, version))[0]
    return finished(delete_records.build(world.services())(context(KEY, version), decoded))


def read(response: Any, version: int = 2) -> tuple[int, int]:
    """Error code and low watermark of the only partition."""
    decoded = codec.decode(DeleteRecordsResponse, version, codec.encode(response, version))[0]
    (result,) = decoded.topics[0].partitions
    return result.error_code, result.low_watermark


def delete(world: World, topic: str, offset: int, **arguments: Any) -> tuple[int, int]:
    outcome = send(world, topic, offset, **arguments)
    return read(outcome.take() if isinstance(outcome, Deferred) else outcome, arguments.get("version", 2))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_log_begins_at_the_offset(world: World, version: int) -> None:
    assert delete(world, "a", 2, version=version) == (0, 2)

    assert world.fetch("a", 1)[0].error_code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.fetch("a", 2)[0].error_code is ErrorCode.NONE


def test_minus_one_is_the_high_watermark(world: World) -> None:
    assert delete(world, "a", -1) == (0, 3)


def test_an_offset_before_the_start_changes_nothing(world: World) -> None:
    delete(world, "a", 2)

    assert delete(world, "a", 1) == (0, 2)


@pytest.mark.parametrize("offset", [4, -2])
def test_an_offset_outside_the_committed_log_is_refused(world: World, offset: int) -> None:
    assert delete(world, "a", offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@pytest.mark.parametrize(("policy", "code"), [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", 0)])
def test_records_of_a_compacted_topic_are_not_deleted_unless_it_is_deleted_too(world: World, policy: str, code: int) -> None:
    world.set_topic_config("a", "cleanup.policy", policy)

    assert delete(world, "a", 1)[0] == code


def test_internal_topics_and_unknown_partitions_are_refused(world: World) -> None:
    world.create_topic("__consumer_offsets")

    assert delete(world, "__consumer_offsets", 0)[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert delete(world, "__consumer_offsets", 0, index=9)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(world, "b", 0)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(world, "a", 0, index=1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_of_a_partition_that_is_named_twice_the_last_offset_counts(world: World) -> None:
    asked = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (3, 1)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="a", partitions=asked)], timeout_ms=TIMEOUT_MS)

    assert read(finished(delete_records.build(world.services())(context(KEY, 2), request))) == (0, 1)


@pytest.fixture
def replicated(tmp_path: Path) -> World:
    """Three records that broker 2 has too."""
    world = World(tmp_path)
    world.register_broker(2)
    world.create_topic("a", replicas=(1, 2), isr=(1, 2))
    world.produce("a", batch("0", "1", "2"))
    world.follower_fetch(2, "a", 3, log_start_offset=0)
    return world


def test_the_answer_waits_until_the_other_replicas_begin_there(replicated: World) -> None:
    answer = send(replicated, "a", 2)
    assert isinstance(answer, Deferred)

    replicated.follower_fetch(2, "a", 3, log_start_offset=1)
    assert not answer.is_done
    replicated.follower_fetch(2, "a", 3, log_start_offset=2)

    assert read(answer.take()) == (0, 2)
    assert replicated.replica_manager.delete_records_purgatory.size == 0


def test_a_replica_that_is_not_alive_is_not_waited_for(replicated: World) -> None:
    replicated.register_broker(2, epoch=1, is_fenced=True)

    assert delete(replicated, "a", 2) == (0, 2)


def test_a_wait_that_takes_too_long_is_told_and_the_records_are_deleted_here(replicated: World) -> None:
    answer = send(replicated, "a", 2)
    assert isinstance(answer, Deferred)

    replicated.clock.advance(TIMEOUT_MS)

    assert read(answer.take()) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert replicated.partition("a").log.log_start_offset == 2


def test_a_wait_ends_when_the_leadership_does(replicated: World) -> None:
    answer = send(replicated, "a", 2)
    assert isinstance(answer, Deferred)

    replicated.change_partition("a", leader=2)

    assert read(answer.take()) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_client_that_is_gone_leaves_nothing_behind(replicated: World) -> None:
    answer = send(replicated, "a", 2)
    assert isinstance(answer, Deferred)

    answer.abandon()

    assert replicated.replica_manager.delete_records_purgatory.size == 0


def test_very_many_topics_are_looked_at_in_turns(world: World) -> None:
    asked = [DeleteRecordsTopic(name=f"missing-{n}", partitions=[]) for n in range(TOPICS)]
    request = DeleteRecordsRequest(topics=asked, timeout_ms=TIMEOUT_MS)

    response, pieces_count = run(delete_records.build(world.services())(context(KEY, 2), request))

    assert [result.name for result in response.topics] == [topic.name for topic in asked]
    assert pieces_count >= TOPICS - ELEMENTS_AT_ONCE
