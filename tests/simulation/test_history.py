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


def test_a_member_that_joins_again_may_commit_what_it_had_until_it_is_synchronized() -> None:
    """It was fenced, did not hear of it, and is a new member without partitions to the coordinator."""
    history = History()
    ledger = Ledger("m", history, may_epochs_restart=True)
    key = ("plain", 0)

    ledger.given("fenced", [key], 6, asked_s=0.9, now_s=1.0)
    ledger.joined_again("fenced", [key])
    ledger.given("next", [key], 6, asked_s=1.9, now_s=2.0)
    ledger.accepted("commit", "fenced", [key], 2.1)
    assert "zombie-commit" not in history.findings

    ledger.given("fenced", [key], 6, asked_s=2.1, now_s=2.2)
    ledger.accepted("commit", "next", [key], 2.3)
    assert "zombie-commit" in history.findings


def test_what_a_power_cut_took_from_one_replica_may_be_skipped_there() -> None:
    def skipping(power_cut_s: float, *, is_durable: bool = False) -> History:
        history = History(durable_topics={KEY[0]} if is_durable else set(), power_cuts_s=[power_cut_s])
        for offset in range(3):
            history.add("producer", "send", "ok", [("send", KEY, offset, f"value{offset}")], 1.0, 1.1)
        history.add("consumer", "poll", "ok", [("poll", {KEY: [(0, "value0"), (2, "value2")]})], 3.0, 3.1)
        return history

    final = {KEY: [(offset, f"value{offset}") for offset in range(3)]}

    assert "int-poll-skip" not in skipping(2.0).check(final, {})
    assert skipping(2.0, is_durable=True).check(final, {})["int-poll-skip"] == [("consumer", KEY, 0, 2)]
    assert "int-poll-skip" in skipping(4.0).check(final, {})  # nothing was taken yet
    assert "int-poll-skip" in skipping(0.5).check(final, {})


def test_a_consumer_goes_on_where_it_was_though_a_power_cut_took_what_it_had_read() -> None:
    def going_on(power_cut_s: float, *, has_read: bool = True) -> History:
        history = History(power_cuts_s=[power_cut_s])
        for offset in range(3):
            history.add("producer", "send", "ok", [("send", KEY, offset, f"old{offset}")], 1.0, 1.1)
        history.add(
            "consumer", "poll", "ok", [("poll", {KEY: [(offset, f"old{offset}") for offset in range(3 if has_read else 1)]})], 2.0, 2.1
        )
        for offset in range(1, 5):
            history.add("producer", "send", "ok", [("send", KEY, offset, f"new{offset}")], 4.0, 4.1)
        history.add("consumer", "poll", "ok", [("poll", {KEY: [(3, "new3")]})], 5.0, 5.1)
        return history

    final = {KEY: [(0, "old0"), *((offset, f"new{offset}") for offset in range(1, 5))]}

    assert going_on(3.0).check(final, {}) == {}
    assert "poll-skip" in going_on(3.0, has_read=False).check(final, {})
