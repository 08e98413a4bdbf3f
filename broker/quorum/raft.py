"""The raft core of the metadata quorum, without I/O (KIP-595, KIP-996, KIP-853, KIP-630).

Followers fetch from the leader, as partitions' replicas do; votes, announcements and resignations are requests of their own. The core gets
requests, responses and the time, and `take_ready` returns what to write and to send. Its driver writes the vote before it sends anything of
the same Ready, and calls `log_is_durable` after an fsync of the log. So a power cut cannot revoke a promise: a vote is on the disk before
its answer is sent, and a voter's next fetch, which acknowledges records, waits for the fsync.

Raft has the changes of role, and proposals. RaftRoles acts on deadlines in each role, RaftRequests answers requests, RaftResponses handles
answers.

Source: org.apache.kafka.raft.KafkaRaftClient.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from broker.quorum.expedited_election import ExpeditedElection
from broker.quorum.leadership import Leadership
from broker.quorum.peers import NEVER_MS, Node, Peers
from broker.quorum.raft_log import ControlRecord, OffsetAndEpoch, RaftLog
from broker.quorum.raft_state import Candidate, Election, Follower, Prospective, RaftState, Resigned, Unattached, Vote
from broker.quorum.voter_changes import VoterChange
from broker.quorum.voters import NO_NODE, Address, Endpoints, LogHistory, ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.control_records import KRaftVersionRecord, LeaderChangeMessage
from protocol.messages.stored.control_records import Voter as VoterId
from protocol.records import ControlRecordType

logger = logging.getLogger("barnabas.quorum")

KRAFT_VERSIONS = (0, 1)
"""The range of kraft.version that this node supports (inclusive); from 1 on the voters are in the log."""
RECONFIGURABLE = 1


class RaftConfig(NamedTuple):
    """This replica and its settings; times in ms. `bootstrap` are addresses at which it looks for a leader. The last two are the sizes
    of its fetches."""

    me: ReplicaKey
    cluster_id: str
    listener_name: str
    endpoints: Endpoints
    bootstrap: Sequence[Address]
    static_voters: VoterSet
    can_become_voter: bool = True
    auto_join: bool = False
    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    answer_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    election_backoff_max_ms: int = 1_000
    fetch_max_bytes: int = 1024 * 1024
    fetch_snapshot_max_bytes: int = 1024 * 1024


class Outgoing(NamedTuple):
    """A request to be sent. `Raft.handle_response` gets it back with the answer, or with None."""

    node: Node
    correlation_id: int
    request: Any


class Reply(NamedTuple):
    """The answer to the request with this `token`."""

    token: Any
    response: Any


class Ready:
    """The core's output, to be processed in this order: write `vote` durably if there is one, then send the rest."""

    __slots__ = ("outgoing", "replies", "vote")

    def __init__(self) -> None:
        self.vote: Vote | None = None
        self.outgoing: list[Outgoing] = []
        self.replies: list[Reply] = []


class Raft:
    """One replica. `vote` is the durable one of its last run; `control_records` are those of its snapshot and log, in order."""

    def __init__(
        self,
        config: RaftConfig,
        log: RaftLog,
        vote: Vote | None,
        control_records: Iterable[ControlRecord],
        *,
        random_source: random.Random,
        now_ms: int,
    ) -> None:
        self.config = config
        self.log = log
        self.state = RaftState(config.me)
        self.peers = Peers(
            config.bootstrap,
            retry_backoff_ms=config.retry_backoff_ms,
            request_timeout_ms=config.answer_timeout_ms,
            random_source=random_source,
        )
        self.voter_history: LogHistory[VoterSet] = LogHistory(config.static_voters)
        self.version_history: LogHistory[int] = LogHistory(0)
        self.is_stopping = False
        self.on_high_watermark: Callable[[], None] = lambda: None
        """Called when the high watermark has moved: parked fetches and voter changes look again."""
        self.on_leadership_lost: Callable[[VoterChange | None], None] = lambda change: None
        """Called before the leader's role ends, with the change of voters that was under way."""
        self.on_other_cluster: Callable[[], None] = lambda: None
        """Called for each answer INCONSISTENT_CLUSTER_ID: this node or the one that answers belongs to another cluster."""
        self.to_wall_clock_ms: Callable[[int], int] = lambda monotonic_ms: monotonic_ms
        """The driver's: what clients are told instead of a time of the core's."""
        self._expedited: ExpeditedElection | None = None  # until there is a leader
        self._random = random_source
        self._ready = Ready()
        self.note_control_records(control_records)
        self._restore(vote or Vote(), now_ms)

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def leader_id(self) -> int:
        """The leader's node id; NO_NODE if it is not known."""
        return self.state.leader_id

    @property
    def is_leader(self) -> bool:
        return self.state.leadership is not None

    @property
    def high_watermark(self) -> int | None:
        return self.state.high_watermark

    @property
    def committed_end_offset(self) -> int | None:
        """The committed end offset that the leader of this epoch has reported; None before its first report."""
        leadership = self.state.leadership
        return self.state.leader_high_watermark if leadership is None else leadership.high_watermark

    @property
    def active_leader_id(self) -> int:
        """The leader that can be asked: as `leader_id`, but NO_NODE after this node has resigned."""
        return NO_NODE if isinstance(self.state.role, Resigned) else self.state.leader_id

    @property
    def voters(self) -> VoterSet:
        """The newest set, committed or not: it is valid from its append on."""
        return self.voter_history.last

    @property
    def kraft_version(self) -> int:
        return self.version_history.last

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.config.me)

    @property
    def log_end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)

    @property
    def as_voter(self) -> Voter:
        return Voter(self.config.me, self.config.endpoints, KRAFT_VERSIONS)

    @property
    def needs_flush(self) -> bool:
        """Whether this replica's log has to be made durable before it continues. Not for observers, which acknowledge nothing."""
        return (self.is_voter or self.config.can_become_voter) and self.log.durable_end_offset < self.log.end_offset

    def draw_election_deadline(self, now_ms: int, *, is_patient: bool = False) -> int:
        """Returns when this replica stands for election: sooner in an expedited election, unless `is_patient`. It is patient after it
        has granted its vote: that election may be about to succeed and only wait for disks."""
        timeout_ms = self.config.election_timeout_ms
        if self._expedited is not None and not is_patient:
            timeout_ms = min(timeout_ms, self._expedited.election_timeout_ms)
        return now_ms + timeout_ms + (self._random.randrange(timeout_ms) if timeout_ms else 0)

    # -- what the driver calls -------------------------------------------------------------------------------------

    def take_ready(self) -> Ready:
        ready, self._ready = self._ready, Ready()
        if self.state.is_vote_changed:
            self.state.is_vote_changed = False
            ready.vote = self.state.vote
        return ready

    def log_is_durable(self, now_ms: int) -> None:
        """Called after an fsync of the log: the leader counts itself, a follower may fetch again."""
        leadership = self.state.leadership
        if leadership is not None and leadership.note_local_end(self.log.durable_end_offset, self.voters):
            self.advance_high_watermark(leadership.high_watermark)

    def propose(self, epoch: int, records: Sequence[Any], *, now_ms: int) -> int:
        """Append `records` as one batch to be committed together; returns the offset of the last. KafkaError NOT_CONTROLLER unless
        this node leads `epoch`; StorageError when the disk fails."""
        leadership = self.state.leadership
        if leadership is None or leadership.epoch != epoch or leadership.is_resigning or self.is_stopping:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum in the epoch of the proposal.")
        return self.log.append_records(records, epoch=epoch, now_ms=now_ms)

    def resign(self, epoch: int) -> None:
        """Give up the leadership of `epoch`, at the next poll of the roles."""
        leadership = self.state.leadership
        if leadership is not None and leadership.epoch == epoch:
            leadership.is_resigning = True

    def stop(self) -> None:
        """Leave the quorum. A leader resigns, so that the others need not wait for a timeout."""
        self.is_stopping = True

    def leader_has_failed(self, node_id: int, now_ms: int) -> None:
        """Called when the leader's process is gone or does not answer: look for another leader without waiting for the fetch timeout."""
        role, epoch = self.state.role, self.epoch
        if not isinstance(role, Follower) or self.state.leader_id != node_id:
            return
        role.has_fetched = False
        is_known = self._expedited is not None and self._expedited.leader_is_gone and self._expedited.is_of(node_id, epoch)
        if self.is_voter and not is_known:
            self._expedited = ExpeditedElection(node_id, epoch, now_ms=now_ms, leader_is_gone=True)
            delay_ms = self._expedited.candidacy_delay_ms(self.voters, self.config.me.node_id)
            role.fetch_deadline_ms = min(role.fetch_deadline_ms, now_ms + delay_ms)

    def leader_lives(self) -> None:
        """Called when the leader answers again: the election is not expedited any more."""
        self._expedited = None

    # -- transitions -----------------------------------------------------------------------------------------------

    def become_unattached(self, epoch: int, now_ms: int, *, leader_id: int = NO_NODE) -> None:
        role = self.state.role
        if not self.is_voter:
            deadline_ms = NEVER_MS
        elif isinstance(role, (Candidate, Unattached, Resigned)) or (isinstance(role, Prospective) and not role.election.is_lost):
            deadline_ms = role.election_deadline_ms  # a new epoch of another candidate does not postpone our own candidacy
        else:
            deadline_ms = self.draw_election_deadline(now_ms)
        self._leave_leadership()
        self.state.become_unattached(epoch, deadline_ms, leader_id=leader_id)
        self.peers.reset()

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        self._leave_leadership()
        fetch_timeout_ms = self.config.fetch_timeout_ms
        if self._expedited is not None and self._expedited.is_of(leader_id, epoch):
            fetch_timeout_ms = min(fetch_timeout_ms, self._expedited.retry_delay_ms(self.voters, self.config.me.node_id))
        else:
            self._expedited = None
        is_news = (epoch, leader_id) != (self.epoch, self.leader_id) or not isinstance(self.state.role, Prospective)
        self.state.become_follower(epoch, leader_id, endpoints, now_ms=now_ms, fetch_timeout_ms=fetch_timeout_ms)
        self.peers.reset()
        if is_news:
            logger.info("the metadata quorum's epoch %d is led by node %d", epoch, leader_id)

    def become_resigned(self, leadership: Leadership, now_ms: int) -> None:
        """Resign; the others are told, the likeliest successors first."""
        self._log_leadership("resigning from epoch %d of the metadata quorum", leadership.epoch)
        voters, successors = self.voters, leadership.successors()
        self._leave_leadership()
        self.state.become_resigned(voters, successors, self.draw_election_deadline(now_ms))
        self.peers.reset()

    def become_prospective(self, now_ms: int) -> None:
        if self._expedited is not None:
            self._expedited.note_try()
            self._expedited = None if self._expedited.is_over else self._expedited
        self.state.become_prospective(self.voters, self.draw_election_deadline(now_ms))
        self._begin_election(now_ms)

    def become_candidate(self, now_ms: int) -> None:
        self.state.become_candidate(self.voters, self.draw_election_deadline(now_ms, is_patient=True))
        self._begin_election(now_ms)

    def _begin_election(self, now_ms: int) -> None:
        role = self.state.role
        assert isinstance(role, (Prospective, Candidate))
        if self._expedited is not None and self._expedited.leader_is_gone:
            role.election.note(self._expedited.leader_id, is_granted=False)
        self.peers.reset()
        self.maybe_advance_election(now_ms)

    def maybe_advance_election(self, now_ms: int) -> None:
        """Become candidate with a majority of pre-votes, or leader with a majority of votes."""
        role = self.state.role
        if isinstance(role, Prospective) and role.election.is_won:
            self.become_candidate(now_ms)
        elif isinstance(role, Candidate) and role.election.is_won:
            self._become_leader(role.election, now_ms)

    def end_lost_election(self, now_ms: int) -> None:
        """Called when the pre-votes were refused or timed out: follow the leader of this epoch again if one is known."""
        state = self.state
        assert isinstance(state.role, Prospective)
        if self._expedited is not None and not state.role.election.is_heard:
            self._expedited.note_no_answer(now_ms)
        if state.leader_id != NO_NODE and state.leader_endpoints:
            self.become_follower(state.epoch, state.leader_id, state.leader_endpoints, now_ms)
        else:
            self.become_unattached(state.epoch, now_ms, leader_id=state.leader_id)

    def gives_way_to(self, candidate_id: int, end: OffsetAndEpoch, now_ms: int) -> bool:
        """Whether this voter grants its pre-vote to a candidate whose log ends at `end`, provided that Raft's own rules allow it. Only
        one voter should stand in an expedited election. So a follower that grants it then waits longer itself, and of two candidates the
        later in the order grants it."""
        role, expedited = self.state.role, self._expedited
        if expedited is None:
            return True
        if isinstance(role, Follower):
            role.fetch_deadline_ms = max(role.fetch_deadline_ms, now_ms + expedited.prevote_grant_wait_ms)
        elif isinstance(role, (Unattached, Resigned)):
            role.election_deadline_ms = max(role.election_deadline_ms, now_ms + expedited.prevote_grant_wait_ms)
        elif isinstance(role, Prospective) and not role.election.is_lost and end == self.log_end:
            return expedited.place_of(candidate_id, self.voters) < expedited.place_of(self.config.me.node_id, self.voters)
        return True

    def succession_deadline(self, role: Follower, deadline_ms: int) -> int:
        """Returns when this voter stands after its leader has resigned and has given it until `deadline_ms`: at the latest when an
        expedited election would. A leader that was just restarted resigns without naming successors."""
        return deadline_ms if self._expedited is None else min(role.fetch_deadline_ms, deadline_ms)

    def shorten_lost_election(self, now_ms: int) -> None:
        """Called after split votes. Only an expedited election tries again sooner: otherwise another candidate may be winning."""
        role = self.state.role
        if isinstance(role, Candidate) and role.election.is_lost and self._expedited is not None:
            delay_ms = self._expedited.retry_delay_ms(self.voters, self.config.me.node_id)
            role.election_deadline_ms = min(role.election_deadline_ms, now_ms + delay_ms)

    def advance_high_watermark(self, offset: int | None) -> None:
        if offset is not None and self.state.advance_high_watermark(offset):
            self.log.set_high_watermark(offset)
            self.on_high_watermark()

    def note_control_records(self, records: Iterable[ControlRecord]) -> None:
        for record in records:
            if record.type is ControlRecordType.KRAFT_VERSION:
                self.version_history.add(record.offset, record.value.k_raft_version)
            elif record.type is ControlRecordType.KRAFT_VOTERS:
                self.voter_history.add(record.offset, VoterSet.from_record(record.value))

    def kraft_records_at(self, offset: int) -> list[tuple[ControlRecordType, Any]]:
        """Returns the quorum's control records for a snapshot that ends at `offset` (exclusive): none before kraft.version 1."""
        version = self.version_history.at(offset - 1)
        if version < RECONFIGURABLE:
            return []
        voters = self.voter_history.at(offset - 1).to_record()
        return [
            (ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=version)),
            (ControlRecordType.KRAFT_VOTERS, voters),
        ]

    def append_voters(self, voters: VoterSet, now_ms: int) -> int:
        """Write the new set to the log; it is valid from there on. Returns the record's offset."""
        record = voters.to_record()
        offset = self.log.append_control_records([(ControlRecordType.KRAFT_VOTERS, record)], epoch=self.epoch, now_ms=now_ms)
        self.voter_history.add(offset, voters)
        return offset

    # -- sending ---------------------------------------------------------------------------------------------------

    def reply(self, token: Any, response: Any) -> None:
        self._ready.replies.append(Reply(token, response))

    def send(self, node: Node, make_request: Callable[[], Any], now_ms: int) -> int:
        """Send if the peer may be asked now. Returns when to check again."""
        if self.peers.is_ready(node, now_ms):
            self._ready.outgoing.append(Outgoing(node, self.peers.note_sent(node, now_ms), make_request()))
        return self.peers.wait_until_ms(node)

    def node_of(self, node_id: int, endpoints: Endpoints) -> Node:
        """Returns the peer as a Node. KeyError if it has no address on our listener."""
        host, port = endpoints[self.config.listener_name]
        return Node(node_id, host, port)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _restore(self, vote: Vote, now_ms: int) -> None:
        """Restore the role of the last run, but never as leader: its followers may have another one by now."""
        state, me = self.state, self.config.me
        last_epoch = self.log.last_epoch
        if vote.epoch < last_epoch:
            vote, state.is_vote_changed = Vote(last_epoch), True
        deadline_ms, fetch_deadline_ms = NEVER_MS, now_ms + self.config.fetch_timeout_ms
        if self.is_voter and not self.voters.is_only_voter(me):
            expedited = self._expedited = ExpeditedElection(vote.leader_id, vote.epoch, now_ms=now_ms, leader_is_gone=False)
            deadline_ms = now_ms + min(expedited.candidacy_delay_ms(self.voters, me.node_id), self.config.election_timeout_ms)
            fetch_deadline_ms = min(fetch_deadline_ms, deadline_ms)
        state.vote = vote
        if vote.leader_id == me.node_id:
            others = {voter_id: None for voter_id in self.voters.ids if voter_id != me.node_id}
            deadline_ms = deadline_ms if self.is_voter else self.draw_election_deadline(now_ms)  # it may not be a voter any more
            state.role = Resigned(deadline_ms, others, [])
        elif vote.voted == me and self.is_voter:
            state.role = Candidate(Election(self.voters, {me.node_id: None}), deadline_ms)
        elif vote.leader_id != NO_NODE and self.voters.endpoints_of(vote.leader_id):
            state.leader_endpoints = self.voters.endpoints_of(vote.leader_id)
            state.role = Follower(fetch_deadline_ms, now_ms + self.config.fetch_timeout_ms)
        else:
            state.role = Unattached(deadline_ms)
        if self.voters.is_only_voter(me):
            if not isinstance(state.role, Candidate):
                self.become_prospective(now_ms)  # there are no others to wait for
            else:
                self.maybe_advance_election(now_ms)

    def _become_leader(self, election: Election, now_ms: int) -> None:
        me, epoch = self.as_voter, self.epoch
        leadership = Leadership(
            me,
            epoch,
            self.log.end_offset,
            self.voters,
            list(election.granted),
            now_ms=now_ms,
            fetch_timeout_ms=self.config.fetch_timeout_ms,
        )
        if self.kraft_version < RECONFIGURABLE:
            leadership.volatile_voters = self.voters.update(me, is_directory_ignored=True)
        self._expedited = None
        self.state.become_leader(leadership, self.config.endpoints)
        self.peers.reset()
        self.log.begin_epoch(epoch)
        self._append_start_of_epoch(leadership, now_ms)
        self._log_leadership("leading epoch %d of the metadata quorum from offset %d", epoch, leadership.epoch_start_offset)

    def _append_start_of_epoch(self, leadership: Leadership, now_ms: int) -> None:
        change = LeaderChangeMessage(
            leader_id=leadership.me.key.node_id,
            voters=[VoterId(voter_id=node_id) for node_id in leadership.voters],
            granting_voters=[VoterId(voter_id=node_id) for node_id in leadership.granting_voters],
        )
        records: list[tuple[ControlRecordType, Any]] = [(ControlRecordType.LEADER_CHANGE, change)]
        voters = None
        if self.kraft_version >= RECONFIGURABLE and (self.voter_history.last_offset == -1 or self.voters.needs_update(leadership.me)):
            # The voters are those of the format's snapshot, or the leader's address has changed: write them to the log.
            voters = self.voters.update(leadership.me)
            assert voters is not None, "only a voter leads"
            records.append((ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=self.kraft_version)))
            records.append((ControlRecordType.KRAFT_VOTERS, voters.to_record()))
        last_offset = self.log.append_control_records(records, epoch=leadership.epoch, now_ms=now_ms)
        if voters is not None:
            self.version_history.add(last_offset - 1, self.kraft_version)
            self.voter_history.add(last_offset, voters)

    def _log_leadership(self, message: str, *facts: int) -> None:
        logger.log(logging.DEBUG if self.voters.is_only_voter(self.config.me) else logging.INFO, message, *facts)

    def _leave_leadership(self) -> None:
        """Fail the requests that wait for this leader. RaftRequests answers the parked fetches."""
        leadership = self.state.leadership
        if leadership is not None:
            self.on_leadership_lost(leadership.change)
            leadership.change = None
