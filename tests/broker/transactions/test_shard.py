"""The life of transactional ids in one shard: what leaves it and when, what a load brings back, what falls due."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordination.timers import RETRY_BACKOFF_MS
from broker.transactions.shard import TOMBSTONE_BATCHES_IN_FLIGHT_MAX, TOMBSTONES_PER_BATCH
from broker.transactions.stored_transaction import encode_key
from broker.transactions.transaction import LAST_CLIENT_EPOCH, LAST_EPOCH, NO_TIMEOUT_MS
from broker.transactions.waiting_additions import WAITING_MAX
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from protocol.messages.stored.version_prefix import encode_with_version
from protocol.records import SimpleRecord
from tests.broker.coordination.memory_log import MemoryLog
from tests.broker.transactions.room import ADD_TIMEOUT_MS, TIMEOUT_MS, Room

DAY_MS = 24 * 60 * 60 * 1000


def begun(version: int = 2, **facts: Any) -> Room:
    """A room in which the producer 1000:0 of "t" has a transaction with a-0."""
    room = Room(version, **facts)
    room.init("t")
    room.add("t", "1000:0", "a-0")
    return room


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
    room.log.append(0, [_stored("x", broken, 1)], lambda error: None)  # what another writer may leave

    room.elect()

    assert (room.state("x"), room.state("t")) == ("unknown", "Ongoing 1000:0 a-0")
    assert "holds no valid record" in caplog.text


def _stored(transactional_id: str, value: TransactionLogValue, version: int) -> SimpleRecord:
    return SimpleRecord(encode_key(TransactionLogKey(transactional_id=transactional_id)), encode_with_version(value, version))


# Fencing.


def test_new_producer_fences_the_one_before():
    room = begun()
    assert room.init("t") == "CONCURRENT_TRANSACTIONS"
    assert room.markers.sent == ["t abort 1000:1 v2 epoch 0 a-0"]

    assert room.init("t") == "NONE 1000:2"
    assert room.add("t", "1000:0", "a-0") == "PRODUCER_FENCED"
    assert room.end("t", "1000:0", commit=True) == "PRODUCER_FENCED"


def test_new_producer_waits_until_the_abort_is_complete():
    room = begun(is_holding_markers=True)

    answers = [room.init("t"), room.init("t")]
    room.markers.write_all()

    assert answers == ["CONCURRENT_TRANSACTIONS"] * 2
    assert room.init("t") == "NONE 1000:2"


def test_producer_that_recovers_goes_on_with_the_next_epoch():
    room = Room()
    room.init("t")

    assert room.init("t", "1000:0") == "NONE 1000:1"
    assert room.init("t", "1000:0") == "NONE 1000:1"  # a retry
    assert room.init("t") == "NONE 1000:2"
    assert room.init("t", "1000:1") == "PRODUCER_FENCED"  # another was initialized


def test_retry_of_a_recovery_is_fenced_after_a_load():
    """The epoch before is not durable, as in Kafka."""
    room = Room()
    room.init("t")
    room.init("t", "1000:0")

    room.elect()

    assert room.init("t", "1000:0") == "PRODUCER_FENCED"


# The end of the epochs.


def exhausted(version: int, epoch: int = LAST_CLIENT_EPOCH, *, state: int = 1, **facts: Any) -> Room:
    """The id has the last epoch that a client can get, with a transaction that has a-0, unless said otherwise."""
    log = MemoryLog()
    room = Room(version, log=log, **facts)
    partitions = None if state == 0 else [PartitionsSchema(topic="a", partition_ids=[0])] if state < 4 else []
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=epoch,
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_status=state,
        transaction_partitions=partitions,
        transaction_start_timestamp_ms=room.clock.now_ms(),
        transaction_last_update_timestamp_ms=room.clock.now_ms(),
    )
    if version >= 1:
        value.previous_producer_id = 7
    log.append(0, [_stored("t", value, min(version, 1))], lambda error: None)  # an older writer's
    room.elect()
    return room


@pytest.mark.parametrize("is_commit", [True, False])
def test_end_with_the_last_epoch_goes_on_with_a_new_producer_id(is_commit: bool):
    room = exhausted(2, is_holding_markers=True)

    assert room.end("t", "7:32766", commit=is_commit) == "NONE 1000:0"
    assert room.state("t").split()[1] == "7:32767"
    assert room.markers.sent[0].split()[2] == "7:32767"
    room.markers.write_all()

    assert room.state("t").split()[1] == "1000:0"
    assert room.end("t", "7:32766", commit=is_commit) == "NONE 1000:0"  # a retry
    assert room.end("t", "7:32766", commit=not is_commit) == "INVALID_TXN_STATE"
    assert room.add("t", "1000:0", "a-0") == "NONE"


def test_new_producer_id_survives_a_load_before_the_completion():
    room = exhausted(2, is_holding_markers=True)
    room.end("t", "7:32766", commit=True)

    room.elect()
    room.markers.write_all()

    assert room.state("t") == "CompleteCommit 1000:0"
    assert room.end("t", "7:32766", commit=True) == "NONE 1000:0"


def test_own_abort_with_the_last_epoch_goes_on_with_a_new_producer_id():
    """KAFKA-20090: the coordinator's own aborts too, or the id has an epoch that no client can use."""
    room = exhausted(2)

    room.clock.advance(TIMEOUT_MS + 1)
    room.sweep()

    assert room.markers.sent == ["t abort 7:32767 v2 epoch 1 a-0"]
    assert room.state("t") == "CompleteAbort 1000:0"
    assert room.init("t") == "NONE 1000:1"


@pytest.mark.parametrize("version", [0, 1])
def test_own_abort_below_version_2_takes_the_last_epoch_and_the_next_producer_gets_a_new_id(version: int):
    room = exhausted(version)

    assert room.init("t") == "CONCURRENT_TRANSACTIONS"
    assert room.state("t") == "CompleteAbort 7:32767"

    assert room.init("t") == "NONE 1000:0"


@pytest.mark.parametrize("state", [0, 4, 5])
@pytest.mark.parametrize("expected", [None, "7:32766"])
def test_initialization_with_the_last_epoch_gives_a_new_producer_id(state: int, expected: str | None):
    room = exhausted(2, state=state)

    assert room.init("t", expected) == "NONE 1000:0"
    if expected is not None:
        assert room.init("t", expected) == "NONE 1000:0"  # a retry


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("state", [0, 1, 2, 3, 4, 5])
def test_id_with_an_epoch_that_no_client_has_recovers(version: int, state: int):
    """Versions of Kafka with KAFKA-20090 leave epoch 32767 behind."""
    room = exhausted(version, LAST_EPOCH, state=state)
    room.markers.write_all()

    answers = [room.init("t") for _ in range(2)]

    assert answers[-1].startswith("NONE 100")
    producer = answers[-1].split()[1]
    assert room.add("t", producer, "a-0") == "NONE"
    assert room.end("t", producer, commit=True).startswith("NONE")


@pytest.mark.parametrize("version", [0, 2])
def test_transaction_with_an_epoch_that_no_client_has_times_out(version: int):
    room = exhausted(version, LAST_EPOCH)

    room.clock.advance(TIMEOUT_MS + 1)
    room.sweep()

    assert room.state("t") == ("CompleteAbort 1000:0" if version == 2 else "CompleteAbort 7:32767")


# Producer ids that have to be waited for.


def test_operations_wait_for_a_producer_id():
    room = Room()
    room.awaited_ids = []
    answer = room.init("t")
    (awaited,) = room.awaited_ids

    awaited.complete(77)

    assert answer == "waits"
    assert room.state("t") == "Empty 77:0"


def test_operation_decides_from_what_holds_when_the_producer_id_comes():
    room = Room()
    room.awaited_ids = []
    room.init("t")
    room.init("t")
    first, second = room.awaited_ids

    second.complete(78)
    first.complete(77)

    assert room.state("t") == "Empty 78:1"


def test_timeout_that_waited_for_a_producer_id_looks_again():
    room = exhausted(2)
    room.awaited_ids = []
    room.clock.advance(TIMEOUT_MS + 1)
    room.sweep()
    (awaited,) = room.awaited_ids
    assert room.end("t", "7:32766", commit=True) == "waits"
    room.awaited_ids[1].complete(78)
    room.markers.write_all()

    awaited.complete(77)

    assert room.state("t") == "CompleteCommit 78:0"


def test_producer_id_that_does_not_come_is_an_answer():
    room = Room()
    room.awaited_ids = []
    answers: list[str] = []
    from broker.transactions.init_producer_id import InitProducerId

    room.machine.init_producer_id("t", InitProducerId(TIMEOUT_MS), lambda answer: answers.append(answer.error.name))
    room.awaited_ids[0].complete(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    assert answers == ["COORDINATOR_LOAD_IN_PROGRESS"]
    assert room.records() == []


def test_producer_id_that_is_refused_at_once_is_an_answer(monkeypatch: pytest.MonkeyPatch):
    room = Room()

    def refuse() -> int:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    monkeypatch.setattr(room.machine, "_next_producer_id", refuse)

    assert room.init("t") == "COORDINATOR_NOT_AVAILABLE"
    assert room.records() == []


def test_producer_id_that_comes_after_the_shard_has_ended_is_not_used():
    room = Room()
    room.awaited_ids = []
    room.init("t")

    room.runtime.on_resigned(0)
    room.awaited_ids[0].complete(77)

    assert room.records() == []


# Additions that wait for the end of the transaction before.


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


# Changes of the finalized version.


def test_producer_that_was_fenced_below_version_2_is_told_so_by_the_rules_of_2():
    """Kafka takes its epoch for that of a retry, and says that its transaction, which was aborted, is committed."""
    room = begun(1)
    room.init("t")
    assert room.init("t") == "NONE 1000:2"
    room.add("t", "1000:2", "a-0")
    room.end("t", "1000:2", commit=True, version=0)
    room.version = 2

    assert room.end("t", "1000:1", commit=True, version=2) == "PRODUCER_FENCED"


def test_upgrade_in_the_middle_of_a_transaction():
    room = begun(0)
    room.version = 2

    assert room.end("t", "1000:0", commit=True, version=0) == "NONE"
    assert room.add("t", "1000:0", "a-0") == "NONE"
    assert room.end("t", "1000:0", commit=True) == "NONE 1000:1"


@pytest.mark.parametrize("version", [0, 1])
def test_downgrade_in_the_middle_of_a_transaction(version: int):
    """Kafka fails an EndTxn of version 5 at 0, and leaves the id pending until the next load."""
    room = begun(2)
    room.version = version

    assert room.add("t", "1000:0", "b-0", version=2) == "NONE"
    assert room.end("t", "1000:0", commit=False, version=2) == "NONE 1000:1"
    assert room.markers.sent == ["t abort 1000:1 v2 epoch 0 a-0 b-0"]
    assert room.add("t", "1000:0", "b-0", version=2) == "PRODUCER_FENCED", "a late batch must not begin the next transaction"
    room.elect()
    assert room.end("t", "1000:0", commit=False, version=2) == "NONE 1000:1", "a retry"


@pytest.mark.parametrize("version", [0, 1])
def test_a_decided_outcome_is_written_by_the_rules_of_its_client_after_a_downgrade_and_a_failover(version: int):
    """Else a late marker of it could end the producer's next transaction."""
    room = begun(2, is_holding_markers=True)
    room.version = version
    room.end("t", "1000:0", commit=True, version=2)

    room.elect()
    room.markers.write_all()

    assert room.markers.sent == ["t commit 1000:1 v2 epoch 0 a-0", "t commit 1000:1 v2 epoch 1 a-0"]
    assert room.state("t") == "CompleteCommit 1000:1"
    assert room.end("t", "1000:0", commit=True, version=2) == "NONE 1000:1", "a retry"


def test_a_client_that_has_heard_of_the_downgrade_goes_on_by_the_lower_rules():
    room = begun(2)
    room.version = 0
    room.end("t", "1000:0", commit=True, version=2)

    assert room.add("t", "1000:1", "a-0", version=0) == "NONE"
    assert room.end("t", "1000:1", commit=True, version=0) == "NONE"
    assert room.end("t", "1000:1", commit=True, version=0) == "NONE", "a retry"
    assert room.markers.sent[-1] == "t commit 1000:1 v0 epoch 0 a-0"


@pytest.mark.parametrize("version", [0, 1])
def test_transaction_of_a_client_of_version_2_that_times_out_after_a_downgrade_is_not_committed(version: int):
    room = begun(2)
    room.version = version
    room.clock.advance(TIMEOUT_MS + 1)
    room.sweep()

    assert room.end("t", "1000:0", commit=True, version=2) == "PRODUCER_FENCED"
    assert room.markers.sent == ["t abort 1000:1 v0 epoch 0 a-0"]


def test_downgrade_between_outcome_and_completion_keeps_the_new_producer_id():
    room = exhausted(2, is_holding_markers=True)
    room.end("t", "7:32766", commit=True)
    room.version = 0

    room.markers.write_all()

    assert room.state("t") == "CompleteCommit 1000:0"
    room.elect()
    assert room.state("t") == "CompleteCommit 1000:0"


def test_records_below_version_1_have_no_tagged_fields_but_those_of_a_client_of_version_2():
    room = Room(0)
    room.init("t")
    room.add("t", "1000:0", "a-0", version=0)
    room.end("t", "1000:0", commit=True, version=0)
    room.add("t", "1000:0", "a-0", version=2)

    values = [value for _, value in room.records() if value is not None]

    assert [value.transaction_status for value in values] == [0, 1, 2, 4, 1]
    assert [(value.previous_producer_id, value.client_transaction_version) for value in values] == [(-1, 0)] * 4 + [(1000, 2)]


def test_records_have_null_for_the_partitions_of_an_empty_id_alone():
    room = begun()
    room.end("t", "1000:0", commit=True)

    found = [value.transaction_partitions for _, value in room.records() if value is not None]

    a_0 = [PartitionsSchema(topic="a", partition_ids=[0])]
    assert found == [None, a_0, a_0, []]
