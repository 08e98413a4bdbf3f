"""Producer ids and epochs of transactional ids: who is fenced, and what follows the last epoch."""

from __future__ import annotations

import pytest

from broker.transactions.transaction import LAST_EPOCH
from protocol.errors import ErrorCode, KafkaError
from tests.broker.transactions.room import TIMEOUT_MS, Room, begun, exhausted

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
