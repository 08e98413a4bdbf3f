"""The state of one raft replica: its epoch, its vote, the leader it knows, and its role; and every legal change of them.

    Unattached ──election timeout──► Prospective ──majority of pre-votes──► Candidate ──majority of votes──► Leader
        ▲  ▲                            │     ▲                                │                               │
        │  └──────pre-votes refused─────┘     └────────election timeout────────┘                               │ lost its
        │                                                                                                      ▼ majority
    any role: a higher epoch ─► Unattached, a leader of this epoch ─► Follower ──fetch timeout──► Prospective   Resigned

Changes that must survive a restart (epoch, vote, leader) are marked; the driver writes them before anything is sent.

Source: org.apache.kafka.raft.QuorumState and its EpochState classes; KIP-595, KIP-996 (pre-vote).
"""

from __future__ import annotations

from typing import NamedTuple

from broker.quorum.leadership import Leadership
from broker.quorum.peers import NEVER_MS
from broker.quorum.raft_log import OffsetAndEpoch
from broker.quorum.voters import NO_ENDPOINTS, NO_NODE, Endpoints, ReplicaKey, VoterSet


class Election:
    """The votes of one round. The voters are those of the round's start; the candidate has voted for itself."""

    __slots__ = ("granted", "refused", "voters")

    def __init__(self, voters: VoterSet, granted: dict[int, None]) -> None:
        self.voters = voters
        self.granted = granted
        self.refused: dict[int, None] = {}

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= self.majority

    @property
    def is_lost(self) -> bool:
        return len(self.voters) - len(self.refused) < self.majority

    @property
    def is_heard(self) -> bool:
        """Whether a majority has answered, or is counted as having answered."""
        return len(self.granted) + len(self.refused) >= self.majority

    @property
    def unanswered(self) -> list[ReplicaKey]:
        return [voter.key for voter in self.voters if voter.key.node_id not in self.granted and voter.key.node_id not in self.refused]

    def note(self, node_id: int, *, is_granted: bool) -> None:
        if self.voters.find(node_id) is None:
            return
        to, other = (self.granted, self.refused) if is_granted else (self.refused, self.granted)
        other.pop(node_id, None)
        to[node_id] = None


class Unattached:
    """Knows the epoch and perhaps its leader, but not the leader's address. May have voted in it."""

    __slots__ = ("election_deadline_ms",)

    def __init__(self, election_deadline_ms: int) -> None:
        self.election_deadline_ms = election_deadline_ms


class Prospective:
    """Asks whether it would get votes, before it disturbs others with a new epoch."""

    __slots__ = ("election", "election_deadline_ms")

    def __init__(self, election: Election, election_deadline_ms: int) -> None:
        self.election = election
        self.election_deadline_ms = election_deadline_ms


class Candidate:
    """Has voted for itself in a new epoch and asks for votes."""

    __slots__ = ("election", "election_deadline_ms")

    def __init__(self, election: Election, election_deadline_ms: int) -> None:
        self.election = election
        self.election_deadline_ms = election_deadline_ms


class Follower:
    """Fetches from the leader of its epoch."""

    __slots__ = (
        "fetch_deadline_ms",
        "fetching_snapshot",
        "has_fetched",
        "has_updated_leader",
        "snapshot_position",
        "update_voter_deadline_ms",
    )

    def __init__(self, fetch_deadline_ms: int, update_voter_deadline_ms: int) -> None:
        self.fetch_deadline_ms = fetch_deadline_ms
        self.update_voter_deadline_ms = update_voter_deadline_ms
        self.has_fetched = False
        """Whether a fetch from this leader succeeded: then the leader is alive, and no other voter gets a pre-vote."""
        self.fetching_snapshot: OffsetAndEpoch | None = None
        self.snapshot_position = 0
        self.has_updated_leader = False
        """Whether the leader knows this voter's endpoints (kraft.version 0, where they are not in the log)."""


class Resigned:
    """Led this epoch until it resigned. It tells the voters, so that they need not wait for their timeouts."""

    __slots__ = ("election_deadline_ms", "successors", "unacknowledged")

    def __init__(self, election_deadline_ms: int, unacknowledged: dict[int, None], successors: list[ReplicaKey]) -> None:
        self.election_deadline_ms = election_deadline_ms
        self.unacknowledged = unacknowledged
        self.successors = successors


Role = Unattached | Prospective | Candidate | Follower | Leadership | Resigned


class Vote(NamedTuple):
    """The durable state of a replica: its epoch, its vote there, and the leader."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None


class RaftState:
    """See the module's docstring. Owner: Raft. `high_watermark` never goes back; it is None until it is known."""

    def __init__(self, me: ReplicaKey) -> None:
        self.me = me
        self.vote = Vote()
        self.is_vote_changed = False
        self.leader_endpoints: Endpoints = NO_ENDPOINTS
        self.role: Role = Unattached(NEVER_MS)
        self.high_watermark: int | None = None
        self.leader_high_watermark: int | None = None
        """What the leader of this epoch says is committed; may lie beyond the end of this replica's log."""

    @property
    def epoch(self) -> int:
        return self.vote.epoch

    @property
    def leader_id(self) -> int:
        return self.vote.leader_id

    @property
    def leadership(self) -> Leadership | None:
        """The leader's state; None if this replica does not lead."""
        return self.role if isinstance(self.role, Leadership) else None

    def become_unattached(self, epoch: int, deadline_ms: int, *, leader_id: int = NO_NODE) -> None:
        assert epoch > self.epoch or (epoch == self.epoch and isinstance(self.role, Prospective))
        voted = self.vote.voted if epoch == self.epoch else None
        self._change(Unattached(deadline_ms), Vote(epoch, leader_id, voted))

    def become_prospective(self, voters: VoterSet, deadline_ms: int) -> None:
        """Start a round of pre-votes. In memory only, because it promises nothing."""
        assert not isinstance(self.role, (Leadership, Prospective))
        self.role = Prospective(Election(voters, {self.me.node_id: None}), deadline_ms)

    def become_candidate(self, voters: VoterSet, deadline_ms: int) -> None:
        assert isinstance(self.role, Prospective)
        self.leader_endpoints = NO_ENDPOINTS
        self._change(Candidate(Election(voters, {self.me.node_id: None}), deadline_ms), Vote(self.epoch + 1, NO_NODE, self.me))

    def become_leader(self, leadership: Leadership, endpoints: Endpoints) -> None:
        assert isinstance(self.role, Candidate) and self.role.election.is_won
        self.leader_endpoints = endpoints
        self._change(leadership, Vote(self.epoch, self.me.node_id))  # Kafka's leader forgets its vote too

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, *, now_ms: int, fetch_timeout_ms: int) -> None:
        assert epoch >= self.epoch and leader_id != self.me.node_id and endpoints
        assert epoch > self.epoch or not isinstance(self.role, Leadership), "an epoch has one leader"
        voted = self.vote.voted if epoch == self.epoch else None
        self.leader_endpoints = endpoints
        deadline_ms = now_ms + fetch_timeout_ms
        self._change(Follower(fetch_deadline_ms=deadline_ms, update_voter_deadline_ms=deadline_ms), Vote(epoch, leader_id, voted))

    def become_resigned(self, voters: VoterSet, successors: list[ReplicaKey], deadline_ms: int) -> None:
        assert isinstance(self.role, Leadership)
        others = {voter_id: None for voter_id in voters.ids if voter_id != self.me.node_id}
        self.role = Resigned(deadline_ms, others, successors)

    def add_vote(self, candidate: ReplicaKey, deadline_ms: int) -> None:
        """Promise this epoch's vote to `candidate` and restart the election timeout."""
        assert isinstance(self.role, (Unattached, Prospective)) and self.vote.voted is None and candidate.node_id != self.me.node_id
        self.role.election_deadline_ms = deadline_ms
        self._change(self.role, Vote(self.epoch, self.leader_id, candidate))

    def would_vote_for(self, candidate: ReplicaKey, *, is_log_current: bool, is_pre_vote: bool) -> bool:
        """Whether `candidate`, of this epoch, gets a vote or a pre-vote. `is_log_current` means that its log is not behind ours."""
        role = self.role
        if isinstance(role, Follower):
            return is_pre_vote and not role.has_fetched and is_log_current
        if isinstance(role, (Leadership, Candidate)):
            return is_pre_vote and is_log_current and isinstance(role, Candidate)
        if isinstance(role, Resigned):
            return is_pre_vote and is_log_current
        if is_pre_vote:
            return is_log_current
        if self.vote.voted is not None:
            voted = self.vote.voted
            return voted.node_id == candidate.node_id and voted.directory_id in (bytes(16), candidate.directory_id)
        return self.leader_id == NO_NODE and is_log_current

    def advance_high_watermark(self, offset: int) -> bool:
        """Returns whether it moved; it never goes back."""
        if self.high_watermark is not None and offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def _change(self, role: Role, vote: Vote) -> None:
        if isinstance(role, Unattached):
            self.leader_endpoints = NO_ENDPOINTS
        self.role = role
        if vote.epoch != self.vote.epoch:
            self.leader_high_watermark = None
        if vote != self.vote:
            self.vote = vote
            self.is_vote_changed = True
