"""Transcripts of one raft replica that leads or follows. Names follow KIP-595, KIP-996 and KIP-853."""

from __future__ import annotations

import pytest

from broker.quorum import raft_messages as messages
from broker.quorum.leadership import Leadership
from broker.quorum.raft_state import Prospective, Resigned, Vote
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import fetch_snapshot
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from protocol.messages.fetch import EpochEndOffset, FetchRequest, PartitionData, SnapshotId
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.broker.quorum.memory_log import Entry, Slice
from tests.broker.quorum.raft_room import CLUSTER, FETCH_BYTES, FETCH_MS, LISTENER, SNAPSHOT_BYTES, Room, data, endpoints, key

# -- leading -------------------------------------------------------------------------------------------------------


def test_records_are_committed_by_a_majority_once_the_epochs_first_record_is() -> None:
    room = Room(entries=[Entry(1, "old")], vote=Vote(1))
    room.win()
    assert room.fetch_from(2, 1, 1) is not None
    assert room.raft.high_watermark is None, "the record of epoch 1 is not committed by counting"

    room.fetch_from(2, 2, room.raft.epoch)

    assert room.raft.high_watermark == 2


def test_a_leaders_own_log_counts_only_once_it_is_durable() -> None:
    room = Room()
    room.win()
    room.replica.propose(room.raft.epoch, ["a"], now_ms=room.now_ms)
    room.take()

    room.fetch_from(2, 2, room.raft.epoch)
    assert room.raft.high_watermark in (None, 1)

    room.flush()
    assert room.raft.high_watermark == 2


def test_a_parked_fetch_is_answered_by_the_next_proposal() -> None:
    room = Room()
    room.win()
    room.fetch_from(2, 1, room.raft.epoch)
    assert room.fetch_from(2, 1, room.raft.epoch) is None

    room.replica.propose(room.raft.epoch, ["a"], now_ms=room.now_ms)
    room.take()

    assert len(room.replies[-1].responses[0].partitions[0].records) == 1


def test_a_parked_fetch_is_answered_by_a_change_of_the_voters() -> None:
    room = Room(is_reconfigurable=True)
    room.win()
    end_offset = room.log.end_offset
    room.fetch_from(2, end_offset, room.raft.epoch)
    assert room.fetch_from(2, end_offset, room.raft.epoch) is None

    leaving = RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=3, voter_directory_id=key(3).directory_id)
    answer = room.ask(leaving)

    assert len(answer.responses[0].partitions[0].records) == 1, "the fetch's answer: that to the removal waits until it is committed"


def test_a_parked_fetch_is_answered_empty_when_its_wait_is_over() -> None:
    room = Room()
    room.win()
    room.fetch_from(2, 1, room.raft.epoch)
    assert room.fetch_from(2, 1, room.raft.epoch) is None

    room.pass_time(500)

    assert len(room.replies[-1].responses[0].partitions[0].records) == 0


def test_a_proposal_of_another_epoch_is_refused() -> None:
    room = Room()
    room.win()

    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        room.replica.propose(room.raft.epoch - 1, ["late"], now_ms=room.now_ms)


def test_a_diverging_follower_is_told_where_its_epoch_ends() -> None:
    room = Room(entries=[Entry(1, "a"), Entry(2, "b")], vote=Vote(2))
    room.win()

    answer = room.fetch_from(2, 5, 1)

    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (1, 1)


def test_a_leader_that_nobody_fetches_from_resigns_and_tells_the_voters() -> None:
    room = Room()
    room.win()

    sent = room.pass_time(int(1.5 * FETCH_MS))

    assert isinstance(room.raft.state.role, Resigned)
    assert {type(each.request) for each in sent} == {EndQuorumEpochRequest}


def test_a_leader_that_learns_of_a_newer_epoch_answers_who_waits_and_follows() -> None:
    room = Room()
    room.win()
    room.fetch_from(2, 1, room.raft.epoch)
    assert room.fetch_from(2, 1, room.raft.epoch) is None

    room.follow(3, room.raft.epoch + 1)

    errors = [reply.responses[0].partitions[0].error_code for reply in room.replies if hasattr(reply, "responses")]
    assert errors[-1] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not isinstance(room.raft.state.role, Leadership)


# -- following -----------------------------------------------------------------------------------------------------


def test_a_followers_next_fetch_waits_for_its_own_fsync() -> None:
    room = Room()
    room.follow(2, 1)
    before = len(room.sent)

    assert not room.fetched(2, 1, data(Entry(1, "a")))
    assert len(room.sent) == before

    sent = room.flush()
    assert [each.request.topics[0].partitions[0].fetch_offset for each in sent] == [1]


def test_a_follower_cuts_its_log_where_it_diverges() -> None:
    room = Room(entries=[Entry(1, "a"), Entry(1, "b"), Entry(2, "c")], vote=Vote(2))
    room.follow(2, 3)

    diverging = PartitionData(records=Slice(0, []), diverging_epoch=EpochEndOffset(epoch=1, end_offset=1))
    room.fetched(2, 3, diverging)

    assert room.log.end_offset == 1


def test_a_follower_far_behind_loads_a_snapshot_and_goes_on_behind_it() -> None:
    room = Room()
    room.follow(2, 3)
    sent = room.fetched(2, 3, PartitionData(records=Slice(0, []), snapshot_id=SnapshotId(end_offset=10, epoch=2)))
    assert [type(each.request) for each in sent] == [FetchSnapshotRequest]

    facts = messages.LeaderFacts(3, 2, endpoints(2), LISTENER)
    piece = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=10, epoch=2), size=10, position=0, unaligned_records=[Entry(2, "x")] * 10
    )
    sent = room.answer(sent[0], messages.fetch_snapshot_response(facts, 1, piece))

    assert (room.log.start_offset, room.raft.high_watermark) == (10, 10)
    asked = sent[0].request.topics[0].partitions[0]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (10, 2)
    assert asked.high_watermark == -1, "the leader has not told its own: it shall answer at once"


def test_a_follower_asks_for_as_much_at_once_as_its_configuration_says() -> None:
    room = Room()
    room.follow(2, 3)
    fetches = [each.request for each in room.sent if isinstance(each.request, FetchRequest)]
    sent = room.fetched(2, 3, PartitionData(records=Slice(0, []), snapshot_id=SnapshotId(end_offset=10, epoch=2)))

    assert {fetch.max_bytes for fetch in fetches} == {FETCH_BYTES}
    assert sent[0].request.max_bytes == SNAPSHOT_BYTES


def test_a_leader_answers_with_as_much_as_was_asked_for_and_never_too_much() -> None:
    """Kafka's nodes before 4.3 set no limit."""
    room = Room()
    room.win()

    for asked, read in ((5, 5), (0, 1), (2**31 - 1, messages.ANSWER_BYTES_MAX)):
        room.fetch_from(2, 0, 0, max_bytes=asked)
        assert room.log.read_max_bytes == read


def test_a_follower_whose_leader_is_silent_stands_for_election() -> None:
    room = Room()
    room.follow(2, 1)

    room.pass_time(FETCH_MS)

    assert isinstance(room.raft.state.role, Prospective)
    assert room.raft.leader_id == 2, "the leader of the epoch is remembered: a refused attempt goes back to it"


def test_the_first_successor_of_a_resigning_leader_stands_at_once() -> None:
    room = Room()
    room.follow(2, 1)
    room.fetched(2, 1, data())

    room.ask(messages.end_quorum_epoch_request(CLUSTER, 1, 2, endpoints(2), [key(1), key(3)]))
    room.pass_time(1)

    assert isinstance(room.raft.state.role, Prospective)
