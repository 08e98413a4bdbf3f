"""Goal: whatever breaks, an epoch has one leader, what is committed stays, and healed replicas agree. Method: seeds of a simulated world.

The ablations prove that the world would notice: with one safeguard switched off a kept seed fails; when it passes, others are tried.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.quorum.raft import Raft
from broker.quorum.raft_state import RaftState, Vote
from broker.quorum.replica import RaftReplica
from storage.errors import StorageError
from tests.broker.quorum import raft_world
from tests.broker.quorum.raft_world import run_seed

pytestmark = pytest.mark.long("a hundred simulated worlds")

SEEDS = 15  # for each shape of quorum
SEARCHED_SEEDS = 1_000
SHAPES = {
    "three voters": {"voters_count": 3},
    "five voters": {"voters_count": 5},
    "two voters": {"voters_count": 2},
    "voters come and go": {"voters_count": 3, "observers_count": 2, "is_reconfigurable": True},
    "one voter, others join": {"voters_count": 1, "observers_count": 2, "is_reconfigurable": True},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_histories_keep_what_was_committed(shape: str) -> None:
    worlds = [run_seed(seed, **SHAPES[shape]) for seed in range(SEEDS)]

    assert sum(len(world.committed) for world in worlds) > 50 * SEEDS, "the faults are too dense to prove anything"
    assert sum(len(world.leaders) for world in worlds) > SEEDS, "hardly any leader was lost"


def test_one_seed_gives_one_history() -> None:
    first, second = run_seed(5), run_seed(5)

    assert first.counts == second.counts
    assert list(first.committed.values()) == list(second.committed.values())


def acknowledge_before_the_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's fetch acknowledges what a power cut takes back."""
    monkeypatch.setattr(Raft, "needs_flush", property(lambda self: False))
    monkeypatch.setattr(RaftReplica, "needs_flush", property(lambda self: self.raft.log.durable_end_offset < self.raft.log.end_offset))


def vote_for_shorter_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter does not compare logs."""
    vote = RaftState.would_vote_for

    def vote_anyway(self: RaftState, candidate: object, *, is_log_current: bool, is_pre_vote: bool) -> bool:
        return vote(self, candidate, is_log_current=True, is_pre_vote=is_pre_vote)  # type: ignore[arg-type]

    monkeypatch.setattr(RaftState, "would_vote_for", vote_anyway)


def vote_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter grants every candidate of an epoch its vote."""
    vote = RaftState.would_vote_for

    def vote_again(self: RaftState, candidate: object, *, is_log_current: bool, is_pre_vote: bool) -> bool:
        kept, self.vote = self.vote, Vote(self.vote.epoch)
        is_granted = vote(self, candidate, is_log_current=is_log_current, is_pre_vote=is_pre_vote)  # type: ignore[arg-type]
        self.vote = kept
        return is_granted

    monkeypatch.setattr(RaftState, "would_vote_for", vote_again)


def forget_the_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voter that is restarted knows its epoch, and not whom it voted for there."""

    def start(config: object, log: object, vote: Vote | None, *arguments: object, **named: object) -> RaftReplica:
        return RaftReplica(config, log, None if vote is None else vote._replace(voted=None), *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(raft_world, "RaftReplica", start)


ABLATIONS = {
    acknowledge_before_the_fsync: 404,
    vote_for_shorter_logs: 2,
    vote_twice: 31,
    forget_the_vote: 690,
}


@pytest.mark.parametrize("ablation", ABLATIONS, ids=lambda ablation: ablation.__name__)
def test_world_notices_a_missing_safeguard(ablation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    ablation(monkeypatch)

    kept = ABLATIONS[ablation]
    assert any(fails(seed) for seed in [kept, *range(SEARCHED_SEEDS)]), f"no seed of {SEARCHED_SEEDS} fails without this safeguard"


def fails(seed: int) -> bool:
    try:
        run_seed(seed, voters_count=3 if seed % 2 else 5)
    except (AssertionError, KeyError, IndexError, StorageError):
        return True
    return False
