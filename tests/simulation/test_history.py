"""What the simulated world's own checks take for an anomaly."""

from __future__ import annotations

from tests.simulation.consumer_group import Ledger
from tests.simulation.history import Commit, History

KEY = ("orders", 0)


def history_of(*commits: Commit) -> History:
    history = History(are_commits_durable=True)
    history.commits += commits
    return history


def test_an_offset_below_an_acknowledged_commit_is_found() -> None:
    history = history_of(Commit(KEY, 36, 1, 1.0, 2.0), Commit(KEY, 10, 1, 0.1, 0.2))

    history.saw_committed(KEY, 10, 3.0)

    assert history.findings["commit-regression"] == [(KEY, 36, 10)]


def test_an_offset_that_was_committed_later_is_none() -> None:
    """A consumer starts over when a power cut took the records at its position."""
    history = history_of(Commit(KEY, 36, 1, 1.0, 2.0), Commit(KEY, 0, 1, 2.5))

    history.saw_committed(KEY, 0, 3.0)

    assert "commit-regression" not in history.findings


def test_an_answer_that_was_held_back_takes_nothing_from_the_next_member() -> None:
    history = History()
    ledger = Ledger("k", history)
    key = ("plain", 0)

    ledger.given("next", [key], 11, asked_s=1.9, now_s=2.0)
    ledger.given("before", [key], 9, asked_s=1.8, now_s=2.1)
    ledger.accepted("commit", "next", [key], 2.2)
    assert "zombie-commit" not in history.findings

    ledger.accepted("commit", "before", [key], 2.2)
    assert "zombie-commit" in history.findings
