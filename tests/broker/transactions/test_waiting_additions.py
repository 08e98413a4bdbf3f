"""Partitions that are added while the transaction before is not complete."""

from __future__ import annotations

from broker.coordination.timers import RETRY_BACKOFF_MS
from broker.transactions.waiting_additions import WAITING_MAX
from protocol.errors import ErrorCode
from tests.broker.transactions.room import ADD_TIMEOUT_MS, Room, begun, exhausted


def test_addition_waits_for_the_markers_of_the_transaction_before():
    room = begun(is_holding_markers=True)
    room.end("t", "1000:0", commit=True)
    answers = room.add_later("t", "1000:1", "b-0") + room.add_later("t", "1000:1", "b-1")
    waiting = room.add_later("t", "1000:1", "b-2")
    assert answers + waiting == []

    room.markers.write_all()

    assert waiting == ["NONE"]
    assert room.state("t") == "Ongoing 1000:1 b-0 b-1 b-2"
    assert room.clock.pending_timers == []


def test_addition_waits_for_the_producer_id_that_follows_an_exhausted_one():
    room = exhausted(2, is_holding_markers=True)
    room.end("t", "7:32766", commit=True)
    waiting = room.add_later("t", "1000:0", "b-0")
    assert waiting == []

    room.markers.write_all()

    assert waiting == ["NONE"]


def test_addition_does_not_wait_longer_than_its_timeout():
    room = begun(is_holding_markers=True)
    room.end("t", "1000:0", commit=True)
    waiting = room.add_later("t", "1000:1", "b-0")

    room.clock.advance(ADD_TIMEOUT_MS)
    room.markers.write_all()

    assert waiting == ["CONCURRENT_TRANSACTIONS"]
    assert room.state("t") == "CompleteCommit 1000:1"


def test_addition_waits_on_when_the_completion_is_refused():
    room = begun(is_holding_markers=True)
    room.end("t", "1000:0", commit=True)
    waiting = room.add_later("t", "1000:1", "b-0")
    room.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    room.markers.write_all()
    assert waiting == []

    room.log.fail_with = None
    room.clock.advance(RETRY_BACKOFF_MS)

    assert waiting == ["NONE"]


def test_addition_that_waits_is_refused_when_the_shard_ends():
    room = begun(is_holding_markers=True)
    room.end("t", "1000:0", commit=True)
    waiting = room.add_later("t", "1000:1", "b-0")

    room.runtime.on_resigned(0)

    assert waiting == ["NOT_COORDINATOR"]
    assert room.clock.pending_timers == []


def test_additions_that_wait_are_bounded_in_number():
    room = begun(is_holding_markers=True)
    room.end("t", "1000:0", commit=True)
    for _ in range(WAITING_MAX):
        assert room.add_later("t", "1000:1", "b-0") == []

    assert room.add_later("t", "1000:1", "b-0") == ["CONCURRENT_TRANSACTIONS"]


def test_addition_is_computed_on_what_is_not_committed_and_answered_when_it_is():
    """Partitions of several brokers join together: Kafka answers all but the first with CONCURRENT_TRANSACTIONS."""
    room = Room()
    room.init("t")
    room.log.is_holding = True
    first, second, again = (room.add_later("t", "1000:0", name) for name in ("a-0", "b-0", "a-0"))
    assert first + second + again == []

    room.log.commit()

    assert first + second + again == ["NONE"] * 3
    assert room.state("t") == "Ongoing 1000:0 a-0 b-0"


def test_addition_for_a_producer_that_nobody_knows_yet_is_concurrent():
    room = Room()
    room.log.is_holding = True
    room.init("t")

    assert room.add("t", "1000:0", "a-0") == "CONCURRENT_TRANSACTIONS"
