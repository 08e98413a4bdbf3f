"""ProducePath.append_markers: markers of one partition, answered when they are replicated; each partition waits by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.replication.produce_path import ProducePath
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.metadata_records import PartitionChangeRecord
from storage.markers import TransactionMarker
from storage.verification import TransactionAppend
from tests.broker.replication.world import World, batch

OK = ErrorCode.NONE
TIMEOUT_MS = 1_000
MARKERS = [TransactionMarker(1, 0, 5, is_commit=True), TransactionMarker(2, 0, 5, is_commit=False)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def end(world: World, topic: str, *markers: TransactionMarker, partition: int = 0) -> list[list[ErrorCode]]:
    """A list that gets the answer."""
    answers: list[list[ErrorCode]] = []
    path: ProducePath = world.replica_manager.produce_path
    path.append_markers(topic, partition, markers or MARKERS, timeout_ms=TIMEOUT_MS, on_done=answers.append)
    return answers


def test_a_partition_without_followers_answers_at_once(world: World) -> None:
    world.create_topic("t")

    assert end(world, "t") == [[OK, OK]]
    assert world.replica_manager.get_partition("t", 0).log.log_end_offset == 2


def test_each_partition_is_answered_when_its_followers_have_the_markers(world: World) -> None:
    world.create_topic("fast", replicas=(1, 2))
    world.create_topic("slow", replicas=(1, 3))
    slow, fast = end(world, "slow"), end(world, "fast")
    assert (slow, fast) == ([], [])

    world.follower_fetch(2, "fast", 2)

    assert (slow, fast) == ([], [[OK, OK]])
    world.follower_fetch(3, "slow", 2)
    assert slow == [[OK, OK]]


def test_a_refused_marker_is_told_with_the_others(world: World) -> None:
    world.create_topic("t", replicas=(1, 2))
    late = TransactionMarker(1, 0, 4, is_commit=True)
    first = end(world, "t")
    second = end(world, "t", late, TransactionMarker(3, 0, 4, is_commit=True))
    only_refused = end(world, "t", late)

    assert (first, second) == ([], [])
    assert only_refused == [[ErrorCode.TRANSACTION_COORDINATOR_FENCED]]
    world.follower_fetch(2, "t", 3)
    assert (first, second) == ([[OK, OK]], [[ErrorCode.TRANSACTION_COORDINATOR_FENCED, OK]])


def test_nothing_is_appended_elsewhere_than_on_a_leader_with_enough_replicas(world: World) -> None:
    world.create_topic("elsewhere", replicas=(1, 2), leader=2)
    world.create_topic("few", replicas=(1, 2), isr=(1,), min_insync_replicas="2")

    assert end(world, "elsewhere") == [[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2]
    assert end(world, "few") == [[ErrorCode.NOT_ENOUGH_REPLICAS] * 2]
    assert end(world, "nowhere") == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2]
    assert world.replica_manager.get_partition("few", 0).log.log_end_offset == 0


def test_markers_in_flight_are_for_the_next_leader(world: World) -> None:
    topic_id = world.create_topic("t", replicas=(1, 2))
    answers = end(world, "t")

    world.metadata.apply_committed([PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2)])

    assert answers == [[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2]


def test_markers_that_are_not_replicated_in_time_are_told_so(world: World) -> None:
    world.create_topic("t", replicas=(1, 2))
    answers = end(world, "t")

    world.clock.advance(TIMEOUT_MS)

    assert answers == [[ErrorCode.REQUEST_TIMED_OUT] * 2]


def test_a_follower_that_waits_is_woken_by_markers(world: World) -> None:
    world.create_topic("t", replicas=(1, 2))
    partition = world.replica_manager.get_partition("t", 0)
    notified: list[object] = []
    world.replica_manager.produce_path._waiting.fetches.notify = notified.append  # type: ignore[method-assign,assignment]

    end(world, "t")

    assert notified == [partition]


def test_a_batch_in_a_transaction_shows_what_was_asked_for(world: World) -> None:
    world.create_topic("t")
    path = world.replica_manager.produce_path
    codes: list[ErrorCode] = []

    def produce(transaction: TransactionAppend | None) -> None:
        records = batch("v", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        path.append(
            [("t", 0, records)],
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            on_done=lambda results: codes.append(results[0].error_code),
            transaction=transaction,
        )

    produce(None)
    guard = path.start_verification("t", 0, 7, 0, 0, supports_epoch_bump=True)
    produce(TransactionAppend(None, supports_epoch_bump=True))
    produce(TransactionAppend(guard, supports_epoch_bump=True))

    assert codes == [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, OK]
    assert path.start_verification("t", 0, 7, 0, 1, supports_epoch_bump=True) is None


def test_verification_begins_on_the_leader_alone(world: World) -> None:
    world.create_topic("elsewhere", replicas=(1, 2), leader=2)

    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        world.replica_manager.produce_path.start_verification("elsewhere", 0, 7, 0, 0, supports_epoch_bump=True)
