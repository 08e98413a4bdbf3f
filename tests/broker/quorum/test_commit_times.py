"""How long the leader's own batches took to be committed."""

from __future__ import annotations

from broker.quorum.commit_times import CommitTimes
from tests.support.clock import ManualClock


def test_a_batch_counts_from_its_proposal_until_all_of_it_is_committed() -> None:
    clock = ManualClock()
    commits = CommitTimes(clock)

    commits.note_proposed(4, epoch=1)
    clock.advance(10)
    commits.note_proposed(9, epoch=1)
    clock.advance(20)
    commits.note_committed(9, epoch=1)  # an exclusive end: 9 is not
    assert (commits.times.average_ms, commits.times.max_ms) == (30, 30)
    clock.advance(50)
    commits.note_committed(10, epoch=1)

    assert (commits.times.average_ms, commits.times.max_ms) == (50, 70)


def test_what_another_leader_may_have_cut_off_does_not_count() -> None:
    clock = ManualClock()
    commits = CommitTimes(clock)
    commits.note_proposed(4, epoch=1)
    clock.advance(1_000)

    commits.note_committed(9, epoch=2)
    commits.note_proposed(12, epoch=3)
    clock.advance(5)
    commits.note_committed(13, epoch=3)

    assert commits.times.max_ms == 5
