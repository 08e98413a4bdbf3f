"""ExpeditedElection: lets a voter stand for election without waiting for the fetch timeout, until there is a leader.

The quorum's timeouts are for silence, which may have many causes. In two cases there is nothing to wait for.

Case A, its leader is gone: the leader's process is proven to be gone, or it does not answer. It counts as a voter that refuses its vote.
Case B, a start: this voter has just been started and does not know a leader. There may be one, so the voter first asks for it, for LOOK_MS.
If every node was restarted, as after a power cut, there is none, and all would wait in vain.

The voters stand one after the other, STEP_MS apart, so that the votes are not split. Two may still stand at once, because a vote waits for
the disk. Then the one with the longer log goes first; if the logs are equal, the one with the earlier place. A voter that has granted a
pre-vote waits for that election before it stands itself. A voter that loses tries again soon, because the others may have got their proofs
later. Each try waits longer than the one before. A live leader is not disturbed: its followers refuse pre-votes.

No counterpart in Kafka, whose voters wait for controller.quorum.fetch.timeout.ms, or controller.quorum.election.timeout.ms and more.
"""

from __future__ import annotations

from broker.quorum.voters import VoterSet

STEP_MS = 20
"""Between the candidacies of two voters: a pre-vote and a vote, which is written to the disk, take a few milliseconds."""
LOOK_MS = 100
"""How long a voter that was just started looks for a leader before it stands: a connection and a fetch take a few milliseconds."""
ELECTION_MS = 100
"""How long the first election may take. Split votes lose it, and it is repeated."""
TRIES_MAX = 6
"""After that the quorum's timeouts count again, and a leader that is gone as any other voter: its next life may be needed."""
ALONE_MAX_MS = 30_000
"""How long the elections of a voter that was started stay expedited while it is alone: what no majority has answered is no try.
Processes that are started together may take long until they listen, one longer than the other."""


class ExpeditedElection:
    """`leader_id` is the leader of `epoch` that this voter last knew. Owner: Raft."""

    __slots__ = ("_alone_until_ms", "_tries", "epoch", "leader_id", "leader_is_gone")

    def __init__(self, leader_id: int, epoch: int, *, now_ms: int, leader_is_gone: bool) -> None:
        self.leader_id = leader_id
        self.epoch = epoch
        self.leader_is_gone = leader_is_gone
        self._alone_until_ms = now_ms if leader_is_gone else now_ms + ALONE_MAX_MS
        self._tries = 0

    def is_of(self, leader_id: int, epoch: int) -> bool:
        return (leader_id, epoch) == (self.leader_id, self.epoch)

    def place_of(self, node_id: int, voters: VoterSet) -> int:
        """The voter's place in the order of candidacies, from 0 on. The order differs by epoch, so that no voter is preferred."""
        others = [voter_id for voter_id in voters.ids if not self.leader_is_gone or voter_id != self.leader_id]
        return (sum(each < node_id for each in others) + self.epoch) % max(len(others), 1)

    def candidacy_delay_ms(self, voters: VoterSet, node_id: int) -> int:
        """How long this voter waits before it stands."""
        look_ms = 0 if self.leader_is_gone or self._tries else LOOK_MS
        return look_ms + (self.place_of(node_id, voters) << self._doublings) * STEP_MS

    def note_try(self) -> None:
        """Called when this voter stands for election."""
        self._tries += 1

    def note_no_answer(self, now_ms: int) -> None:
        """Called when no majority of the voters has answered: they may not have been started yet."""
        if now_ms < self._alone_until_ms:
            self._tries -= 1

    @property
    def is_over(self) -> bool:
        return self._tries > TRIES_MAX

    def retry_delay_ms(self, voters: VoterSet, node_id: int) -> int:
        """As `candidacy_delay_ms`, after a lost election: half a step off the others' first candidacies."""
        return (STEP_MS // 2 << self._doublings) + self.candidacy_delay_ms(voters, node_id)

    @property
    def prevote_grant_wait_ms(self) -> int:
        """How long a voter that has granted its pre-vote waits before it stands itself."""
        return 2 * STEP_MS << self._doublings

    @property
    def election_timeout_ms(self) -> int:
        return ELECTION_MS << self._doublings

    @property
    def _doublings(self) -> int:
        return max(self._tries - 1, 0)
