"""WriteTxnMarkers over real logs: a verdict for each marker and partition, the wait for followers, offsets, and requests in turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.transactions import write_txn_markers
from broker.loop.deferred import Deferred
from broker.loop.turns import ELEMENTS_AT_ONCE
from broker.metadata.image import GROUP_METADATA_TOPIC
from protocol import codec
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from storage.markers import TransactionMarker
from storage.verification import TransactionAppend
from tests.broker.replication.world import World, batch, context
from tests.broker.transactions.held_offsets import HeldOffsets
from tests.support.turns import run, started

KEY = 27
REQUEST_TIMEOUT_MS = 30_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def offsets() -> HeldOffsets:
    return HeldOffsets()


def marker(producer_id: int, *partitions: tuple[str, int], epoch: int = 0, coordinator: int = 5, version: int = 0) -> WritableTxnMarker:
    topics = [WritableTxnMarkerTopic(name=name, partition_indexes=[index]) for name, index in partitions]
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        topics=topics,
        coordinator_epoch=coordinator,
        transaction_version=version,
    )


def handled(world: World, offsets: HeldOffsets | None, markers: list[WritableTxnMarker], version: int) -> Any:
    request = WriteTxnMarkersRequest(markers=markers)
    decoded = codec.decode(WriteTxnMarkersRequest, version, codec.encode(request, version))[0]
    services = world.services()._replace(group_coordinator=offsets)  # type: ignore[arg-type]
    return write_txn_markers.build(services)(context(KEY, version), decoded)


def end(world: World, *markers: WritableTxnMarker, offsets: HeldOffsets | None = None, version: int = 2) -> list[str]:
    """A list that gets the answer as lines: `producer topic-partition ERROR`."""
    outcome = started(handled(world, offsets, list(markers), version))
    lines: list[str] = []
    if isinstance(outcome, Deferred):
        outcome.when_done(lambda response: lines.extend(read(started(response), version)))
    else:
        lines += read(outcome, version)
    return lines


def read(outcome: Any, version: int) -> list[str]:
    response = outcome.take() if isinstance(outcome, Deferred) else outcome
    decoded = codec.decode(WriteTxnMarkersResponse, version, codec.encode(response, version))[0]
    return [
        f"{each.producer_id} {topic.name}-{partition.partition_index} {ErrorCode(partition.error_code).name}"
        for each in decoded.markers
        for topic in each.topics
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_each_marker_is_written_to_each_of_its_partitions(world: World, version: int) -> None:
    world.create_topic("a", partitions=2)

    lines = end(world, marker(1, ("a", 0), ("a", 1)), marker(2, ("a", 1)), version=version)

    assert lines == ["1 a-0 NONE", "1 a-1 NONE", "2 a-1 NONE"]
    assert [world.partition("a", index).log.log_end_offset for index in (0, 1)] == [1, 2]


def test_each_marker_is_judged_by_itself(world: World) -> None:
    world.create_topic("a")
    end(world, marker(1, ("a", 0), coordinator=5), marker(2, ("a", 0), epoch=3))

    lines = end(world, marker(1, ("a", 0), coordinator=4), marker(2, ("a", 0), epoch=2), marker(3, ("a", 0)))

    assert lines == ["1 a-0 TRANSACTION_COORDINATOR_FENCED", "2 a-0 INVALID_PRODUCER_EPOCH", "3 a-0 NONE"]


@pytest.mark.parametrize(("version", "code"), [(1, "NONE"), (2, "INVALID_PRODUCER_EPOCH")])
def test_only_version_2_tells_by_which_rules_the_epoch_is_judged(world: World, version: int, code: str) -> None:
    """KIP-1228: from transaction version 2 on the marker has a higher epoch than the records."""
    world.create_topic("a")
    world.replica_manager.append(
        [("a", 0, batch("v", producer_id=1, producer_epoch=0, base_sequence=0))], acks=1, timeout_ms=0, on_done=lambda results: None
    )
    open_transaction(world, "a", producer_id=1)

    assert end(world, marker(1, ("a", 0), version=2), version=version) == [f"1 a-0 {code}"]


def open_transaction(world: World, topic: str, *, producer_id: int) -> None:
    path = world.replica_manager.produce_path
    guard = path.start_verification(topic, 0, producer_id, 0, 1, supports_epoch_bump=True)
    records = batch("v", producer_id=producer_id, producer_epoch=0, base_sequence=1, is_transactional=True)
    codes: list[ErrorCode] = []
    path.append(
        [(topic, 0, records)],
        acks=1,
        timeout_ms=0,
        on_done=lambda results: codes.append(results[0].error_code),
        transaction=TransactionAppend(guard, supports_epoch_bump=True),
    )
    assert codes == [ErrorCode.NONE]


def test_the_answer_waits_for_the_slowest_follower(world: World) -> None:
    world.create_topic("slow", replicas=(1, 2))
    world.create_topic("alone")

    lines = end(world, marker(1, ("slow", 0), ("alone", 0)))

    assert lines == []
    assert world.partition("alone").log.high_watermark == 1
    world.follower_fetch(2, "slow", 1)
    assert lines == ["1 slow-0 NONE", "1 alone-0 NONE"]


def test_the_wait_ends_after_request_timeout_ms(world: World) -> None:
    world.create_topic("slow", replicas=(1, 2))
    lines = end(world, marker(1, ("slow", 0)))

    world.clock.advance(REQUEST_TIMEOUT_MS)

    assert lines == ["1 slow-0 REQUEST_TIMED_OUT"]


def test_the_connection_s_next_request_does_not_wait_for_the_followers(world: World) -> None:
    world.create_topic("slow", replicas=(1, 2))

    outcome = started(handled(world, None, [marker(1, ("slow", 0))], 2))

    assert isinstance(outcome, Deferred)
    assert not outcome.holds_order


def test_what_was_appended_stays_when_the_connection_ends(world: World) -> None:
    world.create_topic("slow", replicas=(1, 2))
    outcome = started(handled(world, None, [marker(1, ("slow", 0))], 2))

    outcome.abandon()
    world.follower_fetch(2, "slow", 1)

    assert world.partition("slow").log.high_watermark == 1


def test_partitions_without_an_online_replica_here_are_unknown(world: World) -> None:
    world.create_topic("elsewhere", replicas=(2,), leader=2)
    world.create_topic("follower", replicas=(1, 2), leader=2)
    world.create_topic("a")

    lines = end(world, marker(1, ("elsewhere", 0), ("nowhere", 0), ("a", 7), ("follower", 0)))

    assert lines == [
        "1 elsewhere-0 UNKNOWN_TOPIC_OR_PARTITION",
        "1 nowhere-0 UNKNOWN_TOPIC_OR_PARTITION",
        "1 a-7 UNKNOWN_TOPIC_OR_PARTITION",
        "1 follower-0 NOT_LEADER_OR_FOLLOWER",
    ]


def test_offsets_count_before_their_marker_is_answered(world: World, offsets: HeldOffsets) -> None:
    world.create_topic(GROUP_METADATA_TOPIC)

    lines = end(world, marker(1, (GROUP_METADATA_TOPIC, 0), version=2), offsets=offsets)

    assert lines == []
    assert offsets.asked == [(0, TransactionMarker(1, 0, 5, is_commit=True, transaction_version=2))]
    assert world.partition(GROUP_METADATA_TOPIC).log.log_end_offset == 0  # nothing goes past the group coordinator
    offsets.answer()
    assert lines == ["1 __consumer_offsets-0 NONE"]


def test_markers_of_one_offsets_partition_are_told_apart(world: World, offsets: HeldOffsets) -> None:
    world.create_topic(GROUP_METADATA_TOPIC)
    lines = end(world, marker(1, (GROUP_METADATA_TOPIC, 0)), marker(2, (GROUP_METADATA_TOPIC, 0)), offsets=offsets)

    offsets.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    offsets.answer()

    assert lines == ["1 __consumer_offsets-0 NOT_LEADER_OR_FOLLOWER", "2 __consumer_offsets-0 NONE"]


def test_a_producer_that_is_named_twice_has_one_entry(world: World) -> None:
    world.create_topic("a", partitions=2)

    assert end(world, marker(1, ("a", 0)), marker(2, ("a", 0)), marker(1, ("a", 1))) == ["1 a-0 NONE", "1 a-1 NONE", "2 a-0 NONE"]


def test_nothing_asked_nothing_answered(world: World) -> None:
    assert end(world) == []
    assert end(world, marker(1)) == []


def test_a_long_request_takes_turns(world: World) -> None:
    world.create_topic("a")
    markers = [marker(producer_id, ("a", 0)) for producer_id in range(2 * ELEMENTS_AT_ONCE)]

    response, pieces_count = run(handled(world, None, markers, 2))

    assert read(response, 2)[-1] == f"{2 * ELEMENTS_AT_ONCE - 1} a-0 NONE"
    assert world.partition("a").log.log_end_offset == 2 * ELEMENTS_AT_ONCE
    assert pieces_count > ELEMENTS_AT_ONCE


def test_so_does_the_answer_about_one_topic_with_many_partitions(world: World) -> None:
    count = 2 * ELEMENTS_AT_ONCE
    asked = marker(1)
    asked.topics = [WritableTxnMarkerTopic(name="none", partition_indexes=list(range(count)))]

    response, pieces_count = run(handled(world, None, [asked], 2))

    assert read(response, 2)[-1] == f"1 none-{count - 1} UNKNOWN_TOPIC_OR_PARTITION"
    assert pieces_count > 3 * count - ELEMENTS_AT_ONCE  # each is noted, looked up and answered
