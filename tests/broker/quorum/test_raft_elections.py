"""Transcripts of one raft replica at elections. Names follow KIP-595, KIP-996 and KIP-853."""

from __future__ import annotations

import pytest

from broker.quorum import raft_messages as messages
from broker.quorum.raft import Outgoing
from broker.quorum.raft_log import OffsetAndEpoch
from broker.quorum.raft_state import Candidate, Follower, Prospective, Unattached, Vote
from broker.quorum.voters import ReplicaKey
from protocol.errors import ErrorCode
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from protocol.messages.fetch import FetchRequest, PartitionData
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.messages.vote import VoteRequest
from tests.broker.quorum.memory_log import Entry
from tests.broker.quorum.raft_room import CLUSTER, ELECTION_MS, FETCH_MS, LISTENER, Room, data, endpoints, key


def test_a_single_voter_leads_at_once_and_commits_what_is_durable() -> None:
    room = Room(voters=1)
    assert room.raft.is_leader and room.votes[-1].epoch == 1
    assert room.raft.high_watermark is None

    room.flush()

    assert room.raft.high_watermark == room.log.end_offset == 1


def test_an_election_begins_with_pre_votes_of_the_same_epoch() -> None:
    room = Room()

    room.pass_time(2 * ELECTION_MS)

    assert isinstance(room.raft.state.role, Prospective)
    asked = [each.request.topics[0].partitions[0] for each in room.sent if isinstance(each.request, VoteRequest)]
    assert [(each.pre_vote, each.replica_epoch) for each in asked] == [(True, 0), (True, 0)]
    assert not room.votes, "a pre-vote promises nothing"


def test_a_majority_of_pre_votes_makes_a_candidate_that_has_voted_durably_before_it_asks() -> None:
    room = Room()
    asked = room.pass_time(2 * ELECTION_MS)

    facts = messages.LeaderFacts(0, -1, {}, LISTENER)
    sent = room.answer(asked[0], messages.vote_response(facts, 2, ErrorCode.NONE, is_granted=True))

    assert isinstance(room.raft.state.role, Candidate)
    assert room.votes[-1] == Vote(1, -1, key(1))
    assert {each.request.topics[0].partitions[0].pre_vote for each in sent} == {False}


def test_refused_pre_votes_end_the_attempt() -> None:
    room = Room()
    asked = room.pass_time(2 * ELECTION_MS)

    for outgoing in asked:
        room.answer(outgoing, messages.vote_response(messages.LeaderFacts(0, -1, {}, LISTENER), 2, ErrorCode.NONE))

    assert isinstance(room.raft.state.role, Unattached)
    assert room.raft.epoch == 0


def test_a_voter_votes_once_in_an_epoch_and_remembers_it() -> None:
    room = Room()

    assert room.vote_request(2, 5, OffsetAndEpoch(0, 0)).vote_granted
    assert not room.vote_request(3, 5, OffsetAndEpoch(9, 4)).vote_granted
    assert room.votes[-1] == Vote(5, -1, key(2))

    restarted = Room(vote=room.votes[-1])
    assert restarted.vote_request(2, 5, OffsetAndEpoch(0, 0)).vote_granted
    assert not restarted.vote_request(3, 5, OffsetAndEpoch(9, 4)).vote_granted


@pytest.mark.parametrize(("end", "is_granted"), [((1, 3), False), ((2, 2), False), ((2, 3), True), ((1, 4), True)])
def test_a_vote_goes_to_logs_that_are_not_behind(end: tuple[int, int], is_granted: bool) -> None:
    room = Room(entries=[Entry(1, "a"), Entry(3, "b")])

    assert room.vote_request(2, 9, OffsetAndEpoch(*end)).vote_granted is is_granted


def test_a_voter_that_nobody_can_tell_the_leader_leaves_each_peer_alone_for_a_while() -> None:
    """Kafka asks again at once: while there is no leader its voters ask each other as fast as their network answers."""
    room = Room()
    asked = [each for each in room.pass_time(1) + room.sent if isinstance(each.request, FetchRequest)][:1]
    while asked:
        facts = messages.LeaderFacts(room.raft.epoch, -1, {}, LISTENER)
        answer = messages.fetch_response(facts, 17, PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, records=b""))
        asked = room.answer(asked[0], answer)

    assert len([each for each in room.sent if isinstance(each.request, FetchRequest)]) == 2, "one to each of the two others"
    assert room.pass_time(19) == []
    assert [type(each.request) for each in room.pass_time(1)] == [FetchRequest]


def test_a_follower_that_has_fetched_from_its_leader_gives_no_pre_vote() -> None:
    room = Room()
    room.follow(2, 1)
    assert room.vote_request(3, 1, OffsetAndEpoch(0, 0), is_pre_vote=True).vote_granted

    room.fetched(2, 1, data())

    assert not room.vote_request(3, 1, OffsetAndEpoch(9, 1), is_pre_vote=True).vote_granted


def test_a_proven_crash_of_the_leader_frees_the_pre_vote_and_starts_an_election() -> None:
    room = Room()
    room.follow(2, 1)
    room.fetched(2, 1, data())

    room.replica.leader_has_failed(2, room.now_ms)

    assert room.vote_request(3, 1, OffsetAndEpoch(9, 1), is_pre_vote=True).vote_granted
    room.pass_time(50)
    assert isinstance(room.raft.state.role, Prospective)


def prove_crash(room: Room, leader_id: int) -> None:
    room.follow(leader_id, 1)
    room.fetched(leader_id, 1, data())
    room.replica.leader_has_failed(leader_id, room.now_ms)
    room.take()


def last_vote_request(room: Room) -> Outgoing:
    return next(each for each in reversed(room.sent) if isinstance(each.request, VoteRequest))


def test_after_a_proven_crash_the_voters_stand_one_after_the_other_and_do_not_ask_the_dead_one() -> None:
    """Nodes 1 and 3 are left of the three: in the odd epoch node 3 comes first."""
    room = Room()
    prove_crash(room, 2)
    assert isinstance(room.raft.state.role, Follower)

    sent = room.pass_time(20)

    assert isinstance(room.raft.state.role, Prospective)
    assert [each.node.node_id for each in sent if isinstance(each.request, VoteRequest)] == [3]


def test_a_voter_that_was_faster_than_the_others_proofs_asks_them_again_soon() -> None:
    room = Room()
    prove_crash(room, 2)
    room.pass_time(20)
    facts = messages.LeaderFacts(1, 2, endpoints(2), LISTENER)
    room.answer(last_vote_request(room), messages.vote_response(facts, 2, ErrorCode.NONE, is_granted=False))
    assert isinstance(room.raft.state.role, Follower)

    room.sent.clear()
    room.pass_time(60)

    assert isinstance(room.raft.state.role, Prospective)
    assert last_vote_request(room).node.node_id == 3


@pytest.mark.parametrize(
    ("other_end", "is_given"), [(OffsetAndEpoch(0, 0), True), (OffsetAndEpoch(1, 1), True)], ids=["same log", "longer log"]
)
def test_a_voter_that_stands_after_a_proven_crash_gives_way_to_who_comes_first_or_has_more(
    other_end: OffsetAndEpoch, is_given: bool
) -> None:
    """Node 3 comes before node 1 in epoch 1."""
    room = Room()
    prove_crash(room, 2)
    room.pass_time(20)
    assert isinstance(room.raft.state.role, Prospective)

    assert room.vote_request(3, 1, other_end, is_pre_vote=True).vote_granted is is_given


@pytest.mark.parametrize(
    ("other_end", "is_given"), [(OffsetAndEpoch(0, 0), False), (OffsetAndEpoch(1, 2), True)], ids=["same log", "longer log"]
)
def test_a_voter_that_comes_first_after_a_proven_crash_gives_way_to_a_longer_log_alone(other_end: OffsetAndEpoch, is_given: bool) -> None:
    """In epoch 2 node 1 comes before node 3."""
    room = Room()
    room.follow(2, 2)
    room.fetched(2, 2, data())
    room.replica.leader_has_failed(2, room.now_ms)
    room.take()
    assert isinstance(room.raft.state.role, Prospective)

    assert room.vote_request(3, 2, other_end, is_pre_vote=True).vote_granted is is_given


def test_a_voter_that_gave_its_pre_vote_after_a_proven_crash_lets_that_election_end_first() -> None:
    room = Room()
    prove_crash(room, 2)
    assert room.vote_request(3, 1, OffsetAndEpoch(0, 0), is_pre_vote=True).vote_granted

    room.pass_time(30)
    assert isinstance(room.raft.state.role, Follower)
    room.pass_time(10)

    assert isinstance(room.raft.state.role, Prospective)


def test_a_vote_that_was_given_after_a_proven_crash_is_waited_for_as_long_as_any() -> None:
    """It waits for two disks. Who stands meanwhile deposes the one that was about to lead."""
    voter, candidate = Room(), Room()
    prove_crash(voter, 2)
    assert voter.vote_request(3, 2, OffsetAndEpoch(0, 0)).vote_granted
    prove_crash(candidate, 2)
    candidate.pass_time(20)
    facts = messages.LeaderFacts(1, -1, {}, LISTENER)
    candidate.answer(last_vote_request(candidate), messages.vote_response(facts, 2, ErrorCode.NONE, is_granted=True))

    voter.pass_time(ELECTION_MS - 1)
    candidate.pass_time(ELECTION_MS - 1)

    assert isinstance(voter.raft.state.role, Unattached)
    assert isinstance(candidate.raft.state.role, Candidate)


def test_votes_that_were_shared_after_a_proven_crash_are_cast_anew_soon() -> None:
    room = Room()
    prove_crash(room, 2)
    room.pass_time(20)
    for is_granted in (True, False):  # the pre-vote, then the vote
        facts = messages.LeaderFacts(room.raft.epoch, -1, {}, LISTENER)
        room.answer(last_vote_request(room), messages.vote_response(facts, 2, ErrorCode.NONE, is_granted=is_granted))
    assert isinstance(room.raft.state.role, Candidate)

    room.pass_time(40)

    assert isinstance(room.raft.state.role, Prospective)


def test_elections_without_success_after_a_proven_crash_become_as_patient_as_others_and_ask_everyone() -> None:
    """The crashed leader may be back, and be the only one that can be elected."""
    room = Room()
    prove_crash(room, 2)
    for _ in range(4 * ELECTION_MS):
        room.pass_time(10)

    room.sent.clear()
    for _ in range(2 * ELECTION_MS + FETCH_MS):
        room.pass_time(1)

    asked = {each.node.node_id for each in room.sent if isinstance(each.request, VoteRequest)}
    assert asked == {2, 3}


def test_a_leader_that_answers_after_all_is_followed_as_before() -> None:
    room = Room()
    room.follow(2, 1)
    room.fetched(2, 1, data())
    room.replica.leader_has_failed(2, room.now_ms)

    room.fetched(2, 1, data())
    room.pass_time(FETCH_MS - 1)

    assert isinstance(room.raft.state.role, Follower) and room.raft.state.role.has_fetched


FORMER_LIVES = {
    "follower": Vote(6, 2),
    "leader": Vote(6, 1),
    "voter": Vote(6, voted=key(2)),
    "candidate": Vote(6, voted=key(1)),
    "nothing": None,
}


@pytest.mark.parametrize("former", FORMER_LIVES.values(), ids=FORMER_LIVES)
def test_a_voter_that_was_just_started_stands_soon_if_it_hears_of_no_leader(former: Vote | None) -> None:
    """After the end of all nodes there is no leader whose silence would have to be waited for, one to two seconds."""
    room = Room(vote=former)
    for _ in range(20):
        room.pass_time(10)

    asked = {each.node.node_id for each in room.sent if isinstance(each.request, VoteRequest) and _is_pre_vote(each)}
    assert asked == {2, 3}


def _is_pre_vote(outgoing: Outgoing) -> bool:
    return bool(outgoing.request.topics[0].partitions[0].pre_vote)


def test_a_voter_that_was_just_started_looks_for_the_leader_first() -> None:
    """A restart in a cluster that lives is to cause no election."""
    room = Room(vote=Vote(6, 2))
    assert [each.node.node_id for each in room.sent if isinstance(each.request, FetchRequest)] == [2]
    room.pass_time(99)

    room.fetched(2, 6, data())
    room.pass_time(FETCH_MS - 1)

    assert isinstance(room.raft.state.role, Follower)
    assert not [each for each in room.sent if isinstance(each.request, VoteRequest)]


def test_an_observer_that_has_lost_its_log_but_not_its_vote_follows_the_leader_that_it_remembers() -> None:
    """The log would tell where the leader is, and an observer's log is not synchronised before it fetches on."""
    room = Room(vote=Vote(6, 2), voters=2, knows_voters=False)
    assert isinstance(room.raft.state.role, Unattached)

    room.fetched(2, 6, data(high_watermark=0))

    assert isinstance(room.raft.state.role, Follower)
    assert room.raft.committed_end_offset == 0


def test_a_leader_of_a_newer_epoch_ends_the_expedited_election_of_a_start() -> None:
    room = Room(vote=Vote(6, 2))
    room.follow(3, 7)

    room.pass_time(FETCH_MS - 1)

    assert isinstance(room.raft.state.role, Follower)


def test_a_voter_that_is_alone_after_its_start_goes_on_looking_for_others() -> None:
    """It was the first of all nodes that were started anew: what nobody answers does not make it patient."""
    room = Room(vote=Vote(6, 2))
    candidacies_count, last_role = 0, room.raft.state.role
    for _ in range(1_000):
        for each in room.pass_time(10):
            room.answer(each, None)
        role, last_role = last_role, room.raft.state.role
        candidacies_count += last_role is not role and isinstance(last_role, Prospective)

    assert candidacies_count > 20


def test_the_expedited_election_of_a_start_ends_when_others_answer_and_refuse() -> None:
    """They follow a leader that this voter cannot reach."""
    room = Room(vote=Vote(6, 2))
    facts = messages.LeaderFacts(6, 2, endpoints(2), LISTENER)
    for _ in range(1_000):
        for each in room.pass_time(10):
            is_vote = isinstance(each.request, VoteRequest) and each.node.node_id == 3
            room.answer(each, messages.vote_response(facts, 2, ErrorCode.NONE, is_granted=False) if is_vote else None)
    room.sent.clear()

    room.pass_time(1)
    for _ in range(FETCH_MS // 10 - 1):
        room.pass_time(10)

    assert len([each for each in room.sent if isinstance(each.request, VoteRequest) and each.node.node_id == 3]) <= 1


def test_a_leader_that_was_started_anew_does_not_make_others_that_were_started_wait() -> None:
    """It says that it leads no more, and names no successors."""
    room = Room(vote=Vote(6, 2))
    room.ask(messages.end_quorum_epoch_request(CLUSTER, 6, 2, endpoints(2), []))

    for _ in range(20):
        room.pass_time(10)

    assert isinstance(room.raft.state.role, Prospective)


def test_a_request_of_an_older_epoch_is_fenced_and_told_the_leader() -> None:
    room = Room()
    room.follow(2, 7)

    answer = room.vote_request(3, 6, OffsetAndEpoch(0, 0))

    assert (answer.error_code, answer.leader_id, answer.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 2, 7)


def test_another_cluster_is_refused() -> None:
    request = messages.vote_request("other", 1, key(2), ReplicaKey(1), OffsetAndEpoch(0, 0), is_pre_vote=False)

    assert Room().ask(request).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize("request_class", [VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, FetchSnapshotRequest])
def test_a_request_about_nothing_is_refused(request_class: type) -> None:
    """CVE-2026-83525: empty topics killed Kafka's controller."""
    assert Room().ask(request_class()).error_code == ErrorCode.INVALID_REQUEST


def test_a_vote_for_another_replica_of_this_node_is_refused() -> None:
    request = messages.vote_request(CLUSTER, 1, key(2), ReplicaKey(1, bytes([9]) * 16), OffsetAndEpoch(0, 0), is_pre_vote=False)

    assert Room().ask(request).topics[0].partitions[0].error_code == ErrorCode.INVALID_VOTER_KEY
