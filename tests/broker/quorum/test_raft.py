"""Transcripts of one raft replica: what happens to it, and what it sends. Names follow KIP-595, KIP-996 and KIP-853."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.quorum import raft_messages as messages
from broker.quorum.leadership import Leadership
from broker.quorum.raft import Outgoing, RaftConfig
from broker.quorum.raft_log import ControlRecord, OffsetAndEpoch
from broker.quorum.raft_state import Candidate, Follower, Prospective, Resigned, Unattached, Vote
from broker.quorum.replica import RaftReplica
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import fetch_snapshot
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from protocol.messages.fetch import EpochEndOffset, FetchRequest, PartitionData, SnapshotId
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.messages.stored.control_records import KRaftVersionRecord
from protocol.messages.vote import VoteRequest
from protocol.records import ControlRecordType
from protocol.schema import schema_of
from tests.broker.quorum.memory_log import Entry, MemoryRaftLog, Slice

LISTENER, CLUSTER = "CONTROLLER", "cluster"
ELECTION_MS, FETCH_MS = 1_000, 2_000


def endpoints(node_id: int) -> dict[str, tuple[str, int]]:
    return {LISTENER: ("host", node_id)}


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id]) * 16)


FETCH_BYTES, SNAPSHOT_BYTES = 70_000, 80_000


class Room:
    """Replica 1 of voters 1, 2, 3; the test plays the others. `knows_voters`: False for a replica whose log has not told it the voters."""

    def __init__(
        self,
        *,
        vote: Vote | None = None,
        entries: list[Entry] | None = None,
        voters: int = 3,
        is_reconfigurable: bool = False,
        knows_voters: bool = True,
    ) -> None:
        self.now_ms = 0
        self.log = MemoryRaftLog()
        self.log.entries = list(entries or [])
        self.log.durable_end_offset = self.log.end_offset
        self.votes: list[Vote] = []
        self.sent: list[Outgoing] = []
        self.replies: list[Any] = []
        records: list[ControlRecord] = []
        if is_reconfigurable:  # as the snapshot says that formatting leaves
            voter_set = VoterSet(Voter(key(node_id), endpoints(node_id), (0, 1)) for node_id in range(1, voters + 1))
            records.append(ControlRecord(-1, ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=1)))
            records.append(ControlRecord(-1, ControlRecordType.KRAFT_VOTERS, voter_set.to_record()))
        config = RaftConfig(
            me=key(1),
            cluster_id=CLUSTER,
            listener_name=LISTENER,
            endpoints=endpoints(1),
            bootstrap=[("host", node_id) for node_id in range(2, voters + 1)],
            static_voters=VoterSet(Voter(ReplicaKey(node_id), endpoints(node_id)) for node_id in range(1, voters + 1) if knows_voters),
            election_timeout_ms=ELECTION_MS,
            fetch_timeout_ms=FETCH_MS,
            fetch_max_bytes=FETCH_BYTES,
            fetch_snapshot_max_bytes=SNAPSHOT_BYTES,
        )
        self.replica = RaftReplica(config, self.log, vote, records, random_source=random.Random(1), now_ms=0)
        self.take()

    @property
    def raft(self) -> Any:
        return self.replica.raft

    def take(self) -> list[Outgoing]:
        """What a driver does; returns the requests of this step."""
        ready = self.replica.take_ready()
        if ready.vote is not None:
            self.votes.append(ready.vote)
        self.sent += ready.outgoing
        self.replies += [reply.response for reply in ready.replies]
        return ready.outgoing

    def pass_time(self, ms: int) -> list[Outgoing]:
        self.now_ms += ms
        self.replica.poll(self.now_ms)
        return self.take()

    def flush(self) -> list[Outgoing]:
        self.log.durable_end_offset = self.log.end_offset
        self.replica.log_is_durable(self.now_ms)
        return self.take()

    def ask(self, request: Any) -> Any:
        """The answer of replica 1, None when it is parked."""
        before = len(self.replies)
        self.replica.handle_request("token", request, schema_of(type(request)).versions[1], LISTENER, self.now_ms)
        self.take()
        return self.replies[-1] if len(self.replies) > before else None

    def answer(self, outgoing: Outgoing, response: Any | None) -> list[Outgoing]:
        self.replica.handle_response(outgoing, response, self.now_ms)
        return self.take()

    def vote_request(self, candidate: int, epoch: int, end: OffsetAndEpoch, *, is_pre_vote: bool = False) -> Any:
        request = messages.vote_request(CLUSTER, epoch, key(candidate), ReplicaKey(1), end, is_pre_vote=is_pre_vote)
        return self.ask(request).topics[0].partitions[0]

    def follow(self, leader: int, epoch: int) -> None:
        self.ask(messages.begin_quorum_epoch_request(CLUSTER, epoch, leader, endpoints(leader), ReplicaKey(1)))
        assert isinstance(self.raft.state.role, Follower)

    def fetched(self, leader: int, epoch: int, data: PartitionData) -> list[Outgoing]:
        """Answer the fetch that is under way."""
        facts = messages.LeaderFacts(epoch, leader, endpoints(leader), LISTENER)
        fetch = next(each for each in reversed(self.sent) if isinstance(each.request, FetchRequest))
        return self.answer(fetch, messages.fetch_response(facts, 17, data))

    def win(self) -> None:
        """Become leader by the votes of node 2."""
        self.pass_time(2 * ELECTION_MS + FETCH_MS)
        for _ in range(2):
            request = next(each for each in reversed(self.sent) if isinstance(each.request, VoteRequest) and each.node.node_id == 2)
            facts = messages.LeaderFacts(self.raft.epoch, -1, {}, LISTENER)
            self.answer(request, messages.vote_response(facts, 2, ErrorCode.NONE, is_granted=True))
        assert self.raft.is_leader
        self.flush()

    def fetch_from(self, follower: int, offset: int, last_epoch: int, *, wait_ms: int = 500, max_bytes: int = 1000) -> Any:
        request = messages.fetch_request(
            CLUSTER, self.raft.epoch, key(follower), OffsetAndEpoch(offset, last_epoch), self.raft.high_watermark, max_bytes
        )
        request.max_wait_ms = wait_ms
        response = self.ask(request)
        return None if response is None else response.responses[0].partitions[0]


def data(*entries: Entry, at: int = 0, high_watermark: int = -1) -> PartitionData:
    return PartitionData(records=Slice(at, list(entries)), high_watermark=high_watermark)


# -- elections -----------------------------------------------------------------------------------------------------


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
