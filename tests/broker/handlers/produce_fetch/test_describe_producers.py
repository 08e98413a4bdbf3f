"""DescribeProducers over real logs: who is there, and which error goes where."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.handlers.produce_fetch import describe_producers
from broker.loop.turns import Work
from protocol import codec
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, TopicRequest
from storage.markers import TransactionMarker
from tests.broker.replication.world import World, batch, context
from tests.support.clock import WALL_START_MS
from tests.support.transactions import verified
from tests.support.turns import finished, run

KEY = 61
PRODUCERS = 500
LATE_MS = WALL_START_MS + 5_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create_topic("a")
    return world


def describe(world: World, topic: str, *indexes: int) -> list[PartitionResponse]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(indexes))])
    outcome = finished(describe_producers.build(world.services())(context(KEY, 0), request))
    response = codec.decode(DescribeProducersResponse, 0, codec.encode(outcome, 0))[0]
    (described,) = response.topics
    assert described.name == topic
    return list(described.partitions)


def test_a_producer_is_told_with_its_last_sequence(world: World) -> None:
    world.produce("a", batch("0", "1", producer_id=7, producer_epoch=2, base_sequence=0))
    world.produce("a", batch("2", producer_id=7, producer_epoch=2, base_sequence=2))

    (described,) = describe(world, "a", 0)

    (producer,) = described.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 2)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)
    assert producer.last_timestamp > 0


def test_records_without_a_producer_leave_none(world: World) -> None:
    world.produce("a", batch("0"))

    (described,) = describe(world, "a", 0)

    assert (described.error_code, described.active_producers) == (0, [])


@pytest.mark.parametrize(
    ("topic", "index", "error"),
    [
        ("missing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_not_there(world: World, topic: str, index: int, error: ErrorCode) -> None:
    (described,) = describe(world, topic, index)

    assert described.error_code == error


def test_many_producers_are_described_in_turns(world: World) -> None:
    for producer_id in range(PRODUCERS):
        world.produce("a", batch("0", producer_id=producer_id, producer_epoch=0, base_sequence=0))
    request = DescribeProducersRequest(topics=[TopicRequest(name="a", partition_indexes=[0])])

    work: Work = describe_producers.build(world.services())(context(KEY, 0), request)
    response, pieces_count = run(work)  # type: ignore[arg-type]

    assert len(response.topics[0].partitions[0].active_producers) == PRODUCERS
    assert pieces_count > 1


def test_an_open_transaction_is_told_with_its_start_until_a_marker_ends_it(world: World) -> None:
    log = world.replica_manager.get_partition("a", 0).log
    world.produce("a", batch("0"))
    for sequence in (0, 1):
        records = batch("x", producer_id=7, producer_epoch=2, base_sequence=sequence, is_transactional=True, timestamp=LATE_MS + sequence)
        log.append_as_leader(records, leader_epoch=0, now_ms=LATE_MS, transaction=verified(log, records))
    (described,) = describe(world, "a", 0)
    (ongoing,) = described.active_producers

    marker = TransactionMarker(7, 3, coordinator_epoch=4, is_commit=True, transaction_version=2)
    log.append_markers([marker], leader_epoch=0, now_ms=LATE_MS + 9)
    (described,) = describe(world, "a", 0)
    (ended,) = described.active_producers

    assert (ongoing.current_txn_start_offset, ongoing.coordinator_epoch, ongoing.last_timestamp) == (1, -1, LATE_MS + 1)
    assert (ongoing.producer_epoch, ongoing.last_sequence) == (2, 1)
    assert (ended.current_txn_start_offset, ended.coordinator_epoch, ended.last_timestamp) == (-1, 4, LATE_MS + 9)
    assert (ended.producer_epoch, ended.last_sequence) == (3, -1)
