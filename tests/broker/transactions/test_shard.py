"""The life of transactional ids in one shard: what leaves it and when, and what a load brings back."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordination.timers import RETRY_BACKOFF_MS
from broker.transactions.transaction import NO_TIMEOUT_MS
from protocol.errors import ErrorCode
from protocol.messages.stored.transaction_records import TransactionLogValue
from tests.broker.transactions.room import TIMEOUT_MS, Room, begun, stored_record

DAY_MS = 24 * 60 * 60 * 1000


# A whole transaction.


def test_transactions_from_version_2_have_an_epoch_each():
    room = Room(2)

    dialogue = [
        room.init("t"),
        room.add("t", "1000:0", "a-0", "a-1", "b-0"),
        room.end("t", "1000:0", commit=True),
        room.add("t", "1000:1", "a-0"),
        room.end("t", "1000:1", commit=False),
    ]

    assert dialogue == ["NONE 1000:0", "NONE", "NONE 1000:1", "NONE", "NONE 1000:2"]
    assert room.markers.sent == ["t commit 1000:1 v2 epoch 0 a-0 a-1 b-0", "t abort 1000:2 v2 epoch 0 a-0"]
    assert room.state("t") == "CompleteAbort 1000:2"


@pytest.mark.parametrize("version", [0, 1])
def test_transactions_below_version_2_share_an_epoch(version: int):
    room = Room(version)

    dialogue = [
        room.init("t"),
        room.add("t", "1000:0", "a-0"),
        room.end("t", "1000:0", commit=True),
        room.add("t", "1000:0", "a-0"),
        room.end("t", "1000:0", commit=False),
    ]

    assert dialogue == ["NONE 1000:0", "NONE", "NONE", "NONE", "NONE"]
    assert room.markers.sent == ["t commit 1000:0 v0 epoch 0 a-0", "t abort 1000:0 v0 epoch 0 a-0"]


def test_partitions_are_added_one_by_one():
    room = begun()

    room.add("t", "1000:0", "a-1")
    room.add("t", "1000:0", "b-0")

    assert room.state("t") == "Ongoing 1000:0 a-0 a-1 b-0"


def test_abort_without_partitions_needs_no_markers():
    room = Room(2)
    room.init("t")

    assert room.end("t", "1000:0", commit=False) == "NONE 1000:1"
    assert room.state("t") == "CompleteAbort 1000:1"
    assert room.markers.sent == []


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (lambda room: room.init(""), "INVALID_REQUEST"),
        (lambda room: room.add("", "1000:0", "a-0"), "INVALID_REQUEST"),
        (lambda room: room.verify("", "1000:0", "a-0"), "INVALID_REQUEST"),
        (lambda room: room.end("", "1000:0", commit=True), "INVALID_REQUEST"),
        (lambda room: room.init("t", timeout_ms=0), "INVALID_TRANSACTION_TIMEOUT"),
        (lambda room: room.init("t", timeout_ms=900_001), "INVALID_TRANSACTION_TIMEOUT"),
        (lambda room: room.init("t", keep_prepared=True), "UNSUPPORTED_VERSION"),
        (lambda room: room.init("t", enable_two_phase_commit=True), "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ],
)
def test_request_that_is_refused_whatever_the_state(operation: Any, answer: str):
    room = Room()

    assert operation(room) == answer
    assert room.records() == []


def test_two_phase_commit_has_no_timeout():
    """KIP-939: whatever the request says, and no sweep ends it."""
    room = Room(is_two_phase_commit_enabled=True)
    room.init("t", timeout_ms=0, enable_two_phase_commit=True)
    room.add("t", "1000:0", "a-0")

    room.clock.advance(30 * DAY_MS)
    room.sweep()

    assert room.state("t") == "Ongoing 1000:0 a-0"
    value = room.records()[-1][1]
    assert value is not None
    assert value.transaction_timeout_ms == NO_TIMEOUT_MS


# What leaves the coordinator waits for the commit.


def test_answers_wait_for_the_commit():
    room = Room()
    room.log.is_holding = True
    answers = [room.init("t")]
    room.log.commit()
    answers += [room.add("t", "1000:0", "a-0")]
    room.log.commit()

    answers += [room.end("t", "1000:0", commit=True)]

    assert answers == ["waits"] * 3


def test_markers_wait_for_the_commit_of_the_outcome():
    room = begun()
    room.log.is_holding = True

    room.end("t", "1000:0", commit=True)
    room.clock.advance(room.settings.write_timeout_ms)
    assert room.markers.sent == []
    room.log.commit()

    assert room.markers.sent == ["t commit 1000:1 v2 epoch 0 a-0"]


def test_end_is_answered_before_its_markers_are_written():
    room = begun(is_holding_markers=True)

    assert room.end("t", "1000:0", commit=True) == "NONE 1000:1"
    assert room.state("t") == "PrepareCommit 1000:1 a-0"
    room.markers.write_all()

    assert room.state("t") == "CompleteCommit 1000:1"


def test_end_while_the_last_one_completes_is_concurrent():
    """Not an empty success, which would lose the transaction that it means (ydb issue 52731)."""
    room = begun(is_holding_markers=True)
    room.end("t", "1000:0", commit=True)

    assert room.end("t", "1000:1", commit=True) == "CONCURRENT_TRANSACTIONS"


def test_outcome_that_was_refused_leaves_the_transaction_open():
    room = begun()
    room.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = room.end("t", "1000:0", commit=True)
    room.log.fail_with = None

    assert refused == "COORDINATOR_NOT_AVAILABLE"
    assert room.state("t") == "Ongoing 1000:0 a-0"
    assert room.end("t", "1000:0", commit=True) == "NONE 1000:1"


def test_completion_that_is_refused_is_tried_again():
    room = begun(is_holding_markers=True)
    room.end("t", "1000:0", commit=True)
    room.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    room.markers.write_all()
    room.clock.advance(10 * RETRY_BACKOFF_MS)
    assert room.state("t") == "PrepareCommit 1000:1 a-0"

    room.log.fail_with = None
    room.clock.advance(RETRY_BACKOFF_MS)

    assert room.state("t") == "CompleteCommit 1000:1"
    assert room.clock.pending_timers == []


def test_marker_of_an_earlier_transaction_completes_no_later_one():
    room = begun(is_holding_markers=True)
    room.end("t", "1000:0", commit=True)
    ((_, late),) = room.markers.held
    room.markers.write_all()
    room.add("t", "1000:1", "a-0")
    room.end("t", "1000:1", commit=False)

    late()

    assert room.state("t") == "PrepareAbort 1000:2 a-0"


# Loading.


def test_load_brings_back_what_was_there():
    room = begun()
    room.init("u")
    before = [room.state("t"), room.state("u")]

    room.elect()

    assert [room.state("t"), room.state("u")] == before == ["Ongoing 1000:0 a-0", "Empty 1001:0"]


@pytest.mark.parametrize(("is_commit", "outcome"), [(True, "commit"), (False, "abort")])
def test_load_goes_on_with_what_is_decided(is_commit: bool, outcome: str):
    room = begun(is_holding_markers=True)
    room.end("t", "1000:0", commit=is_commit)

    room.elect()
    assert room.markers.sent == [f"t {outcome} 1000:1 v2 epoch {epoch} a-0" for epoch in (0, 1)]
    assert room.end("t", "1000:0", commit=is_commit) == "CONCURRENT_TRANSACTIONS"
    room.markers.write_all()

    assert room.state("t").startswith("Complete")


def decided_and_not_committed() -> Room:
    """The new leader has an outcome that is not committed, and serves what it knows after the write timeout."""
    room = begun()
    room.log.is_holding = True
    room.end("t", "1000:0", commit=True)
    room.elect()
    room.clock.advance(room.settings.write_timeout_ms)
    return room


def test_no_marker_of_an_outcome_that_is_not_committed_after_a_load():
    """A later leader may not have it and abort: some partitions would have the one, some the other."""
    room = decided_and_not_committed()
    assert room.state("t") == "Ongoing 1000:0 a-0"
    assert room.end("t", "1000:0", commit=False) == "CONCURRENT_TRANSACTIONS"
    room.clock.advance(10 * TIMEOUT_MS)
    room.sweep()
    assert room.markers.sent == []

    room.log.commit()

    assert room.markers.sent == ["t commit 1000:1 v2 epoch 1 a-0"]


def test_outcome_that_was_lost_after_a_load_has_no_consequence():
    room = decided_and_not_committed()
    del room.log.batches[-1]

    room.log.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    room.clock.advance(0)

    assert room.markers.sent == []
    assert room.state("t") == "Ongoing 1000:0 a-0"


def test_markers_of_a_life_that_has_ended_complete_nothing():
    room = begun(is_holding_markers=True)
    room.end("t", "1000:0", commit=True)
    ((_, late),) = room.markers.held
    records_before = len(room.records())

    room.runtime.on_resigned(0)
    late()

    assert room.markers.held == []
    assert len(room.records()) == records_before


def test_retry_of_an_end_is_known_after_a_load():
    room = begun()
    room.end("t", "1000:0", commit=True)

    room.elect()

    assert room.end("t", "1000:0", commit=True) == "NONE 1000:1"


def test_record_of_a_state_that_no_record_has_is_ignored(caplog: pytest.LogCaptureFixture):
    room = begun()
    broken = TransactionLogValue(producer_id=5, transaction_status=9)
    room.log.append(0, [stored_record("x", broken, 1)], lambda error: None)  # what another writer may leave

    room.elect()

    assert (room.state("x"), room.state("t")) == ("unknown", "Ongoing 1000:0 a-0")
    assert "holds no valid record" in caplog.text
