"""What falls due: transactions that are open for too long, and transactional ids at rest."""

from __future__ import annotations

import pytest

from broker.transactions.shard import TOMBSTONE_BATCHES_IN_FLIGHT_MAX, TOMBSTONES_PER_BATCH
from protocol.errors import ErrorCode
from tests.broker.transactions.room import TIMEOUT_MS, Room, begun

DAY_MS = 24 * 60 * 60 * 1000


# Timeouts.


def test_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced():
    room = begun()
    room.clock.advance(TIMEOUT_MS)
    room.sweep()
    assert room.state("t") == "Ongoing 1000:0 a-0"

    room.clock.advance(1)
    room.sweep()

    assert room.state("t") == "CompleteAbort 1000:1"
    assert room.end("t", "1000:0", commit=True) == "INVALID_TXN_STATE"  # a retry of a commit that was not
    assert room.end("t", "1000:0", commit=False) == "NONE 1000:1"


@pytest.mark.parametrize("version", [0, 1])
def test_timeout_below_version_2_fences_by_an_epoch_too(version: int):
    room = begun(version)

    room.clock.advance(TIMEOUT_MS + 1)
    room.sweep()

    assert room.markers.sent == ["t abort 1000:1 v0 epoch 0 a-0"]
    assert room.end("t", "1000:0", commit=True) == "PRODUCER_FENCED"


def test_timeout_counts_from_the_first_partition_over_a_load():
    room = begun()
    room.clock.advance(TIMEOUT_MS // 2)
    room.add("t", "1000:0", "b-0")
    room.elect()

    room.clock.advance(TIMEOUT_MS // 2 + 1)
    room.sweep()

    assert room.state("t") == "CompleteAbort 1000:1"


@pytest.mark.parametrize(("ahead_ms", "state"), [(TIMEOUT_MS, "Ongoing 1000:0 a-0"), (TIMEOUT_MS + 1, "CompleteAbort 1000:1")])
def test_transaction_of_a_coordinator_whose_clock_was_far_ahead_is_aborted_too(ahead_ms: int, state: str):
    room = begun()
    room.clock.jump_wall(-ahead_ms)
    room.elect()

    room.sweep()

    assert room.state("t") == state


def test_timeout_leaves_alone_what_is_not_committed():
    room = begun()
    room.log.is_holding = True
    room.add("t", "1000:0", "b-0")
    room.clock.advance(TIMEOUT_MS + 1)

    room.sweep()

    assert room.written("t") == "Ongoing 1000:0 a-0 b-0"


# Expiry.


def test_ids_at_rest_expire():
    room = begun(id_expiration_ms=DAY_MS)
    room.init("u")
    room.init("v")
    room.clock.advance(DAY_MS - 1)
    room.init("v")
    room.expire()
    assert room.state("u") == "Empty 1001:0"

    room.clock.advance(1)
    room.expire()

    assert [room.state(each) for each in "tuv"] == ["Ongoing 1000:0 a-0", "unknown", "Empty 1002:1"]
    assert room.records()[-1] == ("u", None)
    room.elect()
    assert room.state("u") == "unknown"


def test_id_that_is_used_again_after_its_expiry_is_a_new_one():
    room = Room(id_expiration_ms=DAY_MS)
    room.init("t")
    room.clock.advance(DAY_MS)
    room.expire()

    assert room.add("t", "1000:0", "a-0") == "INVALID_PRODUCER_ID_MAPPING"
    assert room.init("t", "1000:0") == "NONE 1001:0"


def test_expiry_leaves_alone_what_is_not_committed():
    room = Room(id_expiration_ms=0)
    room.log.is_holding = True
    room.init("t")

    room.expire()

    assert len(room.records()) == 1


def test_id_that_expires_is_pending_until_its_tombstone_is_committed():
    room = Room(id_expiration_ms=0)
    room.init("t")
    room.log.is_holding = True
    room.expire()

    assert room.init("t") == "CONCURRENT_TRANSACTIONS"
    assert room.state("t") == "Empty 1000:0"
    room.log.commit()
    room.log.is_holding = False

    assert room.init("t") == "NONE 1001:0"


def test_expiry_writes_in_batches_and_has_a_bounded_number_in_flight():
    room = Room(id_expiration_ms=0)
    count = TOMBSTONES_PER_BATCH * (TOMBSTONE_BATCHES_IN_FLIGHT_MAX + 1)
    for number in range(count):
        room.init(f"t{number}")
    room.log.is_holding = True
    appended_before = len(room.log.batches)

    room.expire()
    assert len(room.log.batches) - appended_before == TOMBSTONE_BATCHES_IN_FLIGHT_MAX
    assert room.machine.has_more_to_expire
    room.log.commit()
    room.expire()
    room.log.commit()

    assert not room.machine.has_more_to_expire
    assert len(room.machine.table) == 0


def test_batch_of_tombstones_is_bounded_in_bytes():
    room = Room(id_expiration_ms=0)
    for number in range(20):
        room.init(f"{number:02}" * 1000)
    appended_before = len(room.log.batches)

    room.expire()

    assert len(room.log.batches) - appended_before == 3


def test_tombstones_that_are_refused_come_with_the_next_call():
    room = Room(id_expiration_ms=0)
    room.init("t")
    room.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    room.expire()
    assert room.state("t") == "Empty 1000:0"

    room.log.fail_with = None
    room.expire()

    assert room.state("t") == "unknown"
