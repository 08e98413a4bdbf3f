"""The leader's state of its followers in one epoch: how far each is, which ones still fetch, and which offset a majority has.

The high watermark is the largest offset that a majority of the voters has made durable, once it lies past the beginning of the epoch:
records of earlier epochs are committed by the first of this one (Raft, section 5.4.2). A leader that a majority of the voters stops
fetching from resigns (check quorum).

Source: org.apache.kafka.raft.LeaderState.
"""

from __future__ import annotations

from broker.quorum.peers import NEVER_MS
from broker.quorum.voter_changes import VoterChange
from broker.quorum.voters import ReplicaKey, Voter, VoterSet

CHECK_QUORUM_FACTOR = 1.5  # of the fetch timeout: a follower's own timeout comes first
OBSERVER_SESSION_MS = 300_000  # an observer that has not fetched for so long is forgotten
CAUGHT_UP_WITHIN_MS = 3_600_000  # how recently a future voter must have fetched
NEVER_FETCHED = -1


class ReplicaProgress:
    """The progress of one replica, as its fetches show. `end_offset` is None until the first fetch."""

    __slots__ = ("end_offset", "key", "last_caught_up_ms", "last_fetch_ms", "leader_end_at_last_fetch")

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset: int | None = None
        self.last_fetch_ms = NEVER_FETCHED
        self.last_caught_up_ms = NEVER_FETCHED
        self.leader_end_at_last_fetch = -1

    def note_fetch(self, end_offset: int, leader_end_offset: int, now_ms: int) -> None:
        if end_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif 0 < self.leader_end_at_last_fetch <= end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.leader_end_at_last_fetch = leader_end_offset
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)
        self.end_offset = end_offset

    def is_replica(self, key: ReplicaKey) -> bool:
        """Whether `key` is this replica. A voter without a directory id matches any replica of its node."""
        return key.node_id == self.key.node_id and self.key.directory_id in (bytes(16), key.directory_id)


class Leadership:
    """The leader's role in one epoch. `me` is the leader as a voter. The object ends with the role; nothing of it is durable."""

    def __init__(
        self, me: Voter, epoch: int, epoch_start_offset: int, voters: VoterSet, granting: list[int], *, now_ms: int, fetch_timeout_ms: int
    ) -> None:
        self.me = me
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        self.granting_voters = granting
        self.voters: dict[int, ReplicaProgress] = {voter.key.node_id: ReplicaProgress(voter.key) for voter in voters}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self.high_watermark: int | None = None
        self.is_resigning = False
        self.change: VoterChange | None = None
        """The change of the voter set that is under way; one at a time."""
        self.volatile_voters: VoterSet | None = None
        """Of kraft.version 0: what the voters said of themselves (directory ids, endpoints), which the log does not keep."""
        self._begin_quorum_deadline_ms = now_ms  # at once
        self._begin_quorum_interval_ms = fetch_timeout_ms // 2
        self._check_quorum_ms = int(fetch_timeout_ms * CHECK_QUORUM_FACTOR)
        self._check_quorum_deadline_ms = now_ms + self._check_quorum_ms
        self._fetched_voters: dict[int, None] = {}

    # -- timers ----------------------------------------------------------------------------------------------------

    @property
    def is_alone(self) -> bool:
        """Whether no other node votes."""
        return list(self.voters) == [self.me.key.node_id]

    @property
    def check_quorum_deadline_ms(self) -> int:
        """The time at which the leader resigns unless a majority has fetched before."""
        return NEVER_MS if self.is_alone else self._check_quorum_deadline_ms

    @property
    def begin_quorum_deadline_ms(self) -> int:
        """The time at which the leader sends BeginQuorumEpoch to voters that do not fetch."""
        return NEVER_MS if self.is_alone else self._begin_quorum_deadline_ms

    def voters_to_notify(self, now_ms: int) -> list[ReplicaKey]:
        """Returns the voters that have not fetched for a while and may not know this leader. They are returned again after an interval."""
        self._begin_quorum_deadline_ms = now_ms + self._begin_quorum_interval_ms
        return [
            progress.key
            for node_id, progress in self.voters.items()
            if node_id != self.me.key.node_id and now_ms - progress.last_fetch_ms >= self._begin_quorum_interval_ms
        ]

    def note_alive(self, key: ReplicaKey, now_ms: int) -> None:
        """Record a request of `key`. If a majority of the voters sends requests, the leader may continue."""
        progress = self.voters.get(key.node_id)
        if progress is None or not progress.is_replica(key):
            return
        self._fetched_voters[key.node_id] = None
        others_needed = len(self.voters) // 2 + (self.me.key.node_id not in self.voters)
        if len(self._fetched_voters) >= others_needed:
            self._fetched_voters.clear()
            self._check_quorum_deadline_ms = now_ms + self._check_quorum_ms

    # -- progress --------------------------------------------------------------------------------------------------

    def note_fetch(self, key: ReplicaKey, fetch_offset: int, leader_end_offset: int, now_ms: int) -> bool:
        """Record that a replica has everything below `fetch_offset`, durably if it is a voter. Returns whether the high watermark moved."""
        if key.node_id < 0:
            return False
        assert key.node_id != self.me.key.node_id, "a leader does not fetch from itself"
        progress = self._progress_of(key)
        progress.note_fetch(fetch_offset, leader_end_offset, now_ms)
        self.note_alive(key, now_ms)
        return progress is self.voters.get(key.node_id) and self._advance()

    def note_local_end(self, durable_end_offset: int, voters: VoterSet) -> bool:
        """Record that the leader's own log is durable up to `durable_end_offset`, and that `voters` is the newest set. Returns whether
        the high watermark moved."""
        self._progress_of(self.me.key).end_offset = durable_end_offset
        self._follow_voters(voters)
        return self._advance()

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Whether an observer may become a voter: it has caught up once, and has fetched recently."""
        progress = self.observers.get(key)
        return progress is not None and progress.last_caught_up_ms > 0 and progress.last_fetch_ms > now_ms - CAUGHT_UP_WITHIN_MS

    def successors(self) -> list[ReplicaKey]:
        """The other voters, those with the longest logs first."""
        return [progress.key for progress in self._by_end_offset() if not progress.is_replica(self.me.key)]

    def forget_silent_observers(self, now_ms: int) -> None:
        for key in [key for key, progress in self.observers.items() if now_ms - progress.last_fetch_ms >= OBSERVER_SESSION_MS]:
            if key != self.me.key:
                del self.observers[key]

    # -- inside ----------------------------------------------------------------------------------------------------

    def _progress_of(self, key: ReplicaKey) -> ReplicaProgress:
        progress = self.voters.get(key.node_id)
        if progress is not None and progress.is_replica(key):
            return progress
        return self.observers.setdefault(key, ReplicaProgress(key))

    def _follow_voters(self, voters: VoterSet) -> None:
        if [voter.key for voter in voters] == [progress.key for progress in self.voters.values()]:
            return
        old = self.voters
        self.voters = {}
        for voter in voters:
            node_id = voter.key.node_id
            known = old.get(node_id)
            if known is not None and known.is_replica(voter.key):
                del old[node_id]
            else:
                known = None
            progress = known or self.observers.pop(voter.key, None) or ReplicaProgress(voter.key)
            progress.key = voter.key
            self.voters[node_id] = progress
        for progress in old.values():
            self.observers.setdefault(progress.key, progress)

    def _by_end_offset(self) -> list[ReplicaProgress]:
        return sorted(self.voters.values(), key=lambda each: -1 if each.end_offset is None else each.end_offset, reverse=True)

    def _advance(self) -> bool:
        candidate = self._by_end_offset()[len(self.voters) // 2].end_offset
        if candidate is None or candidate <= self.epoch_start_offset:
            return False
        if self.high_watermark is not None and candidate <= self.high_watermark:
            return False  # a changed voter set may give a lower one, but it never goes back
        self.high_watermark = candidate
        return True
