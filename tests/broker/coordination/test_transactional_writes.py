"""Records and markers of transactions go through the shard, in the order of all its writes."""

from __future__ import annotations

import pytest

from broker.coordination.coordinator_log import TransactionalWrite
from broker.coordination.records import NO_PRODUCER_ID, CoordinatorResult
from protocol.errors import ErrorCode
from protocol.records import iterate_headers
from storage.markers import TransactionMarker
from storage.verification import VerificationGuard
from tests.broker.coordination.room import WRITE_TIMEOUT_MS, Room

PRODUCER = TransactionalWrite(9, 2, VerificationGuard())
COMMIT = TransactionMarker(9, 3, 7, is_commit=True, transaction_version=2)


def add(room: Room, name: str, producer: TransactionalWrite | None = None) -> None:
    record = room.machine.add(name, 1)
    room.shard.write(CoordinatorResult([record], lambda error: room.answers.append((name, error))), producer)


def end(room: Room, marker: TransactionMarker = COMMIT) -> None:
    room.shard.write_marker(marker, lambda error: room.answers.append(("marker", error)))


def test_records_of_a_transaction_are_replayed_with_its_producer():
    room = Room()

    add(room, "a", PRODUCER)
    add(room, "b")

    assert room.machine.replayed == [("a", 9), ("b", NO_PRODUCER_ID)]
    headers = [next(iterate_headers(batch))[1] for batch in room.log.batches]
    assert [(header.is_transactional, header.producer_id, header.producer_epoch) for header in headers] == [(True, 9, 2), (False, -1, -1)]
    assert room.answers == [("a", ErrorCode.NONE), ("b", ErrorCode.NONE)]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_is_replayed_at_its_place_and_answered_when_it_is_committed(is_commit: bool):
    room = Room()
    room.log.is_holding = True
    add(room, "a", PRODUCER)

    end(room, COMMIT._replace(is_commit=is_commit))
    add(room, "b")

    assert room.machine.ended_transactions == [(9, is_commit)]
    assert room.answers == []
    room.log.commit()
    assert room.answers == [("a", ErrorCode.NONE), ("marker", ErrorCode.NONE), ("b", ErrorCode.NONE)]


def test_what_is_loaded_is_what_was_lived_through():
    room = Room()
    add(room, "a", PRODUCER)
    end(room)
    add(room, "b", PRODUCER)
    lived = (room.machine.replayed, room.machine.ended_transactions, room.machine.totals)

    room.runtime.on_elected(0, 1)
    room.clock.advance(0)

    assert (room.machine.replayed, room.machine.ended_transactions, room.machine.totals) == lived


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_refused_marker_changes_nothing(error: ErrorCode, answer: ErrorCode):
    room = Room()
    add(room, "a", PRODUCER)
    room.log.fail_with = error

    end(room)

    assert room.machine.ended_transactions == []
    assert room.answers[-1] == ("marker", answer)
    room.log.fail_with = None
    end(room)
    assert room.machine.ended_transactions == [(9, True)]


def test_a_refused_write_of_a_transaction_changes_nothing():
    room = Room()
    room.log.fail_with = ErrorCode.INVALID_TXN_STATE

    add(room, "a", PRODUCER)

    assert room.answers == [("a", ErrorCode.INVALID_TXN_STATE)]
    assert room.machine.totals == {}


def test_a_marker_that_was_lost_ends_the_shard():
    room = Room()
    room.log.is_holding = True
    end(room)

    room.log.commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    assert room.answers == [("marker", ErrorCode.NOT_COORDINATOR)]
    assert room.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_marker_that_waits_for_too_long_counts_all_the_same():
    room = Room()
    room.log.is_holding = True
    outcomes: list[ErrorCode] = []
    room.shard.write_marker(COMMIT, lambda error: room.answers.append(("marker", error)), outcomes.append)

    room.clock.advance(WRITE_TIMEOUT_MS)

    assert room.answers == [("marker", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert outcomes == []
    room.log.commit()
    assert outcomes == [ErrorCode.NONE]
    assert room.machine.ended_transactions == [(9, True)]


def test_a_partition_is_found_by_its_number():
    room = Room()

    assert room.runtime.get_shard_of(0) is room.shard
