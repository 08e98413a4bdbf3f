"""MarkerChannels over real logs here and fake peers elsewhere: markers reach every partition, wherever its leader goes, and end nothing
else."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker.metadata.image import GROUP_METADATA_TOPIC
from broker.transactions import marker_queues
from broker.transactions.marker_channels import MARKERS_PER_REQUEST_MAX, RETRY_BACKOFF_MAX_MS, RETRY_BACKOFF_MS
from protocol.errors import ErrorCode
from protocol.messages.stored.metadata_records import FenceBrokerRecord, UnregisterBrokerRecord
from protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from protocol.records import ControlRecordType, EndTransactionMarker
from storage.markers import TransactionMarker
from tests.broker.transactions.channels_room import EPOCH, STATE_PARTITION, ChannelsRoom, prepared

HOUR_MS = 3_600_000


@pytest.fixture
def room(tmp_path: Path) -> ChannelsRoom:
    return ChannelsRoom(tmp_path)


# What is written.


def test_partitions_of_this_broker_are_written_without_a_request(room: ChannelsRoom) -> None:
    room.topic("a", leader=1, partitions=2)

    room.end("t", "a-0", "a-1", commit=False)

    assert room.written == ["t"]
    assert room.markers("a", 0) == room.markers("a", 1) == [EndTransactionMarker(ControlRecordType.ABORT, EPOCH)]
    assert room.peers.requests == []


def test_nothing_is_done_before_the_next_turn(room: ChannelsRoom) -> None:
    """The caller is in the middle of a commit."""
    room.topic("a", leader=1)

    room.channels.send("t", prepared(1, "a-0"), EPOCH, lambda: room.written.append("t"))

    assert (room.written, room.unmarked("t")) == ([], "a-0")
    assert room.world.partition("a").log.log_end_offset == 0


def test_a_slow_follower_holds_back_its_own_partition_only(room: ChannelsRoom) -> None:
    room.world.create_topic("slow", replicas=(1, 2))
    room.topic("a", leader=1)

    room.end("one", "slow-0", producer_id=1)
    room.end("two", "a-0", producer_id=2)

    assert (room.written, room.unmarked("one")) == (["two"], "slow-0")
    room.world.follower_fetch(2, "slow", 1)
    room.turn()
    assert room.written == ["two", "one"]


def test_offsets_count_before_their_transaction_is_complete(room: ChannelsRoom) -> None:
    room.topic(GROUP_METADATA_TOPIC, leader=1)

    room.end("t", f"{GROUP_METADATA_TOPIC}-0")

    assert room.written == []
    assert room.offsets.asked == [(0, TransactionMarker(1, 4, EPOCH, is_commit=True, transaction_version=2))]
    room.offsets.answer()
    room.turn()
    assert room.written == ["t"]


def test_another_broker_is_told_all_of_the_marker(room: ChannelsRoom) -> None:
    room.topic("b", leader=2, partitions=2)

    room.end("t", "b-0", "b-1", producer_id=9, producer_epoch=4)

    (request,) = room.peers.requests
    (marker,) = request.message.markers
    assert request.host == "host2"
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (9, 5, EPOCH)
    assert (marker.transaction_result, marker.transaction_version) == (True, 2)
    assert request.partitions == ["9 b-0", "9 b-1"]


def test_a_transaction_is_complete_when_its_last_marker_is_written(room: ChannelsRoom) -> None:
    room.topic("a", leader=1)
    room.topic("b", leader=2)
    room.topic("c", leader=3)
    room.end("t", "a-0", "b-0", "c-0")
    assert room.unmarked("t") == "b-0 c-0"

    room.answer()
    assert (room.written, room.unmarked("t")) == ([], "c-0")
    room.answer()

    assert room.written == ["t"]
    assert room.channels.unmarked("t", EPOCH) is None


# Batches.


def test_what_comes_while_a_request_is_in_flight_shares_the_next_one(room: ChannelsRoom) -> None:
    room.topic("b", leader=2)
    room.end("one", "b-0", producer_id=1)
    room.end("two", "b-0", producer_id=2)
    room.end("three", "b-0", producer_id=3)
    assert [request.partitions for request in room.peers.requests] == [["1 b-0"]]

    room.answer()

    assert [request.partitions for request in room.peers.requests] == [["2 b-0", "3 b-0"]]
    room.answer()
    assert room.written == ["one", "two", "three"]


def test_brokers_do_not_wait_for_each_other(room: ChannelsRoom) -> None:
    room.topic("b", leader=2)
    room.topic("c", leader=3)
    room.end("one", "b-0", producer_id=1)
    room.end("two", "c-0", producer_id=2)

    room.peers.requests[1].answer()
    room.turn()

    assert room.written == ["two"]


def test_a_request_is_bounded(room: ChannelsRoom) -> None:
    room.topic("b", leader=2, partitions=MARKERS_PER_REQUEST_MAX + 1)

    room.end("t", *(f"b-{index}" for index in range(MARKERS_PER_REQUEST_MAX + 1)))

    assert len(room.peers.requests[0].partitions) == MARKERS_PER_REQUEST_MAX
    room.answer()
    assert len(room.peers.requests[0].partitions) == 1
    room.answer()
    assert room.written == ["t"]


def test_many_transactions_of_one_partition_are_appended_together(room: ChannelsRoom) -> None:
    room.topic("a", leader=1)
    for producer_id in range(250):
        room.channels.send(f"t{producer_id}", prepared(producer_id, "a-0"), EPOCH, lambda: room.written.append("t"))

    room.turn()

    assert room.world.partition("a").log.log_end_offset == 250
    assert len(room.written) == 250


def test_a_refused_marker_leaves_the_others_of_its_request(room: ChannelsRoom) -> None:
    room.topic("b", leader=2)
    room.end("zero", "b-0", producer_id=7)
    room.end("one", "b-0", producer_id=1)
    room.end("two", "b-0", producer_id=2)
    room.answer()

    room.answer({"1 b-0": ErrorCode.NOT_ENOUGH_REPLICAS})

    assert room.written == ["zero", "two"]
    assert room.unmarked("one") == "b-0"


def test_the_markers_of_one_producer_are_written_one_after_the_other(room: ChannelsRoom) -> None:
    room.topic("b", leader=2)
    room.end("t", "b-0", producer_epoch=3)
    room.peers.take().fail_all(ErrorCode.REQUEST_TIMED_OUT)
    room.clock.advance(RETRY_BACKOFF_MS)
    room.answer()
    assert room.written == ["t"]

    room.end("t", "b-0", producer_epoch=4)

    assert [marker.producer_epoch for marker in room.peers.take().message.markers] == [5]


# Retries and failovers.


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_an_error_that_may_pass_is_retried(room: ChannelsRoom, error: ErrorCode) -> None:
    room.topic("b", leader=2)
    room.end("t", "b-0")

    room.peers.take().fail_all(error)
    room.clock.advance(RETRY_BACKOFF_MS - 1)
    assert room.peers.requests == []
    room.clock.advance(1)

    room.answer()
    assert room.written == ["t"]


def test_the_wait_between_attempts_grows_to_a_second(room: ChannelsRoom) -> None:
    room.topic("b", leader=2)
    room.end("t", "b-0")
    waits: list[int] = []

    for _ in range(8):
        room.peers.take().lose()
        waits.append(0)
        while not room.peers.requests:
            room.clock.advance(RETRY_BACKOFF_MS)
            waits[-1] += RETRY_BACKOFF_MS

    assert waits == [20, 40, 80, 160, 320, 640, RETRY_BACKOFF_MAX_MS, RETRY_BACKOFF_MAX_MS]


def test_a_local_refusal_is_retried(room: ChannelsRoom) -> None:
    room.world.create_topic("few", replicas=(1, 2), isr=(1,), min_insync_replicas="2")
    room.end("t", "few-0")
    assert room.written == []

    room.world.set_topic_config("few", "min.insync.replicas", "1")
    room.clock.advance(RETRY_BACKOFF_MAX_MS)

    assert room.written == ["t"]


def test_a_marker_that_the_answer_does_not_tell_of_is_retried(room: ChannelsRoom) -> None:
    room.topic("b", leader=2)
    room.end("t", "b-0")

    room.peers.take().respond(WriteTxnMarkersResponse(markers=[]))
    room.clock.advance(RETRY_BACKOFF_MS)

    assert room.peers.take().partitions == ["1 b-0"]


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_new_leader_gets_the_marker_at_once(room: ChannelsRoom, is_answered: bool) -> None:
    """Also while the request to the one before is not answered, whose answer counts no more."""
    room.topic("b", leader=2)
    room.end("t", "b-0")
    old = room.peers.take()
    if is_answered:
        old.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    room.move("b", 3)

    assert [(request.host, request.partitions) for request in room.peers.requests] == [("host3", ["1 b-0"])]
    old.answer()
    room.turn()
    assert room.written == []
    room.answer()
    assert room.written == ["t"]


def test_this_broker_becomes_the_leader(room: ChannelsRoom) -> None:
    room.world.create_topic("b", replicas=(1, 2), leader=2)
    room.end("t", "b-0")

    room.world.change_partition("b", leader=1, isr=[1])
    room.turn()

    assert room.written == ["t"]
    assert len(room.markers("b")) == 1


def test_this_broker_loses_a_partition_whose_followers_lack_the_marker(room: ChannelsRoom) -> None:
    room.world.create_topic("b", replicas=(1, 2))
    room.end("t", "b-0")
    assert room.world.partition("b").log.log_end_offset == 1

    room.move("b", 2)

    assert (room.written, room.peers.requests[0].partitions) == ([], ["1 b-0"])
    room.answer()
    assert room.written == ["t"]


def test_a_partition_without_a_leader_waits_and_is_not_left_out(room: ChannelsRoom) -> None:
    """KAFKA-20734. Nothing is polled meanwhile: a change of the metadata wakes it."""
    room.topic("b", leader=-1)
    room.topic("c", leader=2)
    room.end("t", "b-0", "c-0")
    room.answer()

    room.clock.advance(HOUR_MS)

    assert (room.written, room.unmarked("t"), room.channels.unknown_destination_count) == ([], "b-0", 1)
    assert (room.peers.requests, room.clock.pending_timers) == ([], [])
    room.move("b", 3)
    room.answer()
    assert (room.written, room.channels.unknown_destination_count) == (["t"], 0)


def test_a_leader_goes_in_the_middle_and_comes_back_after_an_hour(room: ChannelsRoom) -> None:
    room.topic("b", leader=2)
    room.end("t", "b-0")
    lost = room.peers.take()
    room.move("b", -1)
    lost.lose()

    room.clock.advance(HOUR_MS)

    assert (room.peers.requests, room.written) == ([], [])
    room.move("b", 2)
    room.answer()
    assert room.written == ["t"]


def test_a_leader_without_an_address_is_waited_for(room: ChannelsRoom) -> None:
    room.topic("b", leader=2)
    room.world.metadata.apply_committed([UnregisterBrokerRecord(broker_id=2, broker_epoch=0)])
    room.end("t", "b-0")
    assert (room.peers.requests, room.unmarked("t")) == ([], "b-0")

    room.world.register_broker(2, epoch=1)
    room.turn()

    room.answer()
    assert room.written == ["t"]


def test_a_fenced_broker_s_connection_is_given_up(room: ChannelsRoom) -> None:
    """It may never answer, and the next markers for it, when it is back, would wait behind."""
    room.topic("b", leader=2)
    room.topic("c", leader=2)
    room.end("t", "b-0", producer_id=1)

    room.world.metadata.apply_committed([FenceBrokerRecord(id=2, epoch=0)])
    room.turn()
    room.peers.requests.clear()
    room.end("u", "c-0", producer_id=2)

    assert room.peers.dropped == ["host2"]
    assert room.peers.requests[0].partitions == ["2 c-0"]


def test_requests_to_a_broker_go_where_it_registered_last(room: ChannelsRoom) -> None:
    room.topic("b", leader=2)
    room.end("t", "b-0")

    room.world.register_broker(2, epoch=1)
    room.clock.advance(RETRY_BACKOFF_MS)

    assert room.peers.dropped == ["host2"]
    assert [request.partitions for request in room.peers.requests[1:]] == [["1 b-0"]]


# Partitions that are not there.


def test_what_the_metadata_do_not_have_is_left_out(room: ChannelsRoom) -> None:
    room.topic("a", leader=1)

    room.end("t", "a-0", "a-1", "nowhere-0")

    assert room.written == ["t"]


@pytest.mark.parametrize("leader", [-1, 2])
def test_a_topic_that_is_deleted_takes_its_markers_with_it(room: ChannelsRoom, leader: int) -> None:
    room.topic("b", leader=leader, partitions=2)
    room.end("t", "b-0", "b-1")
    assert room.written == []

    room.world.delete_topic("b")

    assert room.written == ["t"]
    assert room.channels.waiting_by_broker() == {}


def test_a_topic_made_anew_gets_no_marker_of_the_one_before(room: ChannelsRoom) -> None:
    room.topic("b", leader=-1)
    room.end("t", "b-0")

    room.world.delete_topic("b", takes_turn=False)
    room.topic("b", leader=1)

    assert (room.written, room.markers("b")) == (["t"], [])


# What no retry can mend.


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_marker_that_is_refused_for_good_counts_as_written(
    room: ChannelsRoom, error: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the id would stay prepared, and each InitProducerId be answered CONCURRENT_TRANSACTIONS."""
    room.topic("b", leader=2, partitions=2)
    room.end("payments", "b-0", "b-1")

    with caplog.at_level(logging.WARNING):
        room.answer({"1 b-1": error})

    assert room.written == ["payments"]
    assert "'payments' for b-1 is refused with" in caplog.text
    assert error.name in caplog.text


@pytest.mark.parametrize("error", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
def test_a_partition_that_can_have_no_transaction_needs_no_marker(room: ChannelsRoom, error: ErrorCode) -> None:
    room.topic("b", leader=2)
    room.end("t", "b-0")

    room.answer({"1 b-0": error})

    assert room.written == ["t"]


# Lives of the coordinator's shard.


def test_a_life_that_has_ended_is_told_nothing(room: ChannelsRoom) -> None:
    room.topic("a", leader=1)
    room.topic("b", leader=2, partitions=2)
    room.topic("c", leader=-1)
    room.end("in flight", "b-0", producer_id=1)
    room.end("waiting", "b-1", producer_id=2)
    room.end("leaderless", "c-0", producer_id=3)

    room.channels.forget(STATE_PARTITION, EPOCH)
    room.turn()
    room.answer()
    room.move("c", 1)
    room.clock.advance(HOUR_MS)

    assert room.written == []
    assert [room.channels.unmarked(each, EPOCH) for each in ("in flight", "waiting", "leaderless")] == [None] * 3
    assert (room.channels.waiting_by_broker(), room.channels.unknown_destination_count, room.peers.requests) == ({}, 0, [])


def test_another_shard_s_transactions_go_on(room: ChannelsRoom) -> None:
    room.topic("b", leader=2)
    room.end("t", "b-0")

    room.channels.forget(STATE_PARTITION, EPOCH - 1)
    room.channels.forget(STATE_PARTITION + 1, EPOCH)
    room.answer()

    assert room.written == ["t"]


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_the_answer_to_an_old_life_ends_no_newer_transaction(room: ChannelsRoom, is_forgotten: bool) -> None:
    """KAFKA-16352."""
    room.topic("b", leader=2)
    room.end("t", "b-0", epoch=EPOCH)
    old = room.peers.take()
    if is_forgotten:
        room.channels.forget(STATE_PARTITION, EPOCH)
    room.end("t", "b-0", epoch=EPOCH + 2)
    assert room.unmarked("t", EPOCH + 2) == "b-0"

    old.answer()
    room.turn()

    assert room.unmarked("t", EPOCH + 2) == "b-0"
    assert [marker.coordinator_epoch for marker in room.peers.requests[0].message.markers] == [EPOCH + 2]
    room.answer()
    assert room.written == (["t"] if is_forgotten else ["t", "t"])


def test_an_id_that_is_sent_again_takes_the_place_of_what_was_there(room: ChannelsRoom) -> None:
    room.topic("b", leader=2)
    room.end("t", "b-0", producer_epoch=3)
    old = room.peers.take()

    room.end("t", "b-0", producer_epoch=4)
    old.answer()
    room.turn()

    assert (room.written, room.unmarked("t")) == ([], "b-0")
    room.answer()
    assert room.written == ["t"]


# Bounds.


def test_what_has_no_room_waits_in_its_transaction(room: ChannelsRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_queues, "MARKERS_MAX", 4)
    room.topic("b", leader=2, partitions=10)

    room.end("t", *(f"b-{index}" for index in range(10)))

    assert (room.channels.waiting_by_broker(), len(room.unmarked("t").split())) == ({2: 4}, 10)
    sent: list[str] = []
    while room.peers.requests:
        sent += room.peers.requests[0].partitions
        room.answer()
    assert sorted(sent) == [f"1 b-{index}" for index in range(10)]
    assert room.written == ["t"]


def test_partitions_without_a_leader_take_no_other_s_room(room: ChannelsRoom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_queues, "MARKERS_MAX", 4)
    room.topic("b", leader=-1, partitions=10)
    room.topic("a", leader=1)
    room.end("t", *(f"b-{index}" for index in range(10)), "a-0", producer_id=1)
    room.end("u", "a-0", producer_id=2)
    assert (room.written, room.channels.unknown_destination_count) == (["u"], 4)

    for index in range(10):
        room.move("b", 2, index)
    while room.peers.requests:
        room.answer()

    assert room.written == ["u", "t"]


def test_a_large_transaction_holds_the_loop_for_a_slice_only(room: ChannelsRoom) -> None:
    room.topic("b", leader=-1, partitions=1_000)
    room.channels.send("t", prepared(1, *(f"b-{index}" for index in range(1_000))), EPOCH, lambda: None)

    steps_count = sum(1 for _ in room.channels._work())

    assert steps_count > 1_000 // 50
    assert room.channels.unknown_destination_count == 1_000


# For the operator, and the end.


def test_it_is_told_what_each_broker_has_to_write(room: ChannelsRoom) -> None:
    room.world.create_topic("slow", replicas=(1, 2))
    room.topic("b", leader=2, partitions=2)
    room.topic("c", leader=-1)

    room.end("t", "slow-0", "b-0", "b-1", "c-0")

    assert room.channels.waiting_by_broker() == {1: 1, 2: 2}
    assert (room.channels.unknown_destination_count, room.channels.unfinished_count) == (1, 1)


async def test_after_the_close_nothing_is_sent_and_nobody_is_told(room: ChannelsRoom) -> None:
    room.topic("b", leader=2, partitions=2)
    room.end("one", "b-0", producer_id=1)
    room.peers.take().lose()
    room.end("two", "b-1", producer_id=2)

    await room.channels.close()
    room.peers.requests.clear()
    room.clock.advance(HOUR_MS)

    assert (room.peers.is_closed, room.peers.requests, room.written) == (True, [], [])


async def test_a_broker_alone_opens_no_connections(room: ChannelsRoom) -> None:
    room.topic("a", leader=1)
    room.end("t", "a-0")

    await room.channels.close()

    assert (room.written, room.peers.is_closed) == (["t"], False)
