"""EndTxn's answers by version."""

from __future__ import annotations

import pytest

from broker.handlers.transactions import end_txn
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from tests.broker.transactions.test_coordinator import Coordinator
from tests.support.services import request_context, services


class Room:
    """The handler over a coordinator on which "t" has begun a transaction with x-0 as producer 1000, epoch 0."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self._handle = end_txn.build(services(transaction_coordinator=self.coordinator.served))
        self.coordinator.init("t")
        self.coordinator.add("t", "1000:0", "x-0")

    def end(self, version: int, *, transactional_id: str = "t", epoch: int = 0, commit: bool = True) -> tuple[ErrorCode, int, int]:
        request = EndTxnRequest(transactional_id=transactional_id, producer_id=1000, producer_epoch=epoch, committed=commit)
        answer = self._handle(request_context(26, version), decode(EndTxnRequest, version, encode(request, version))[0])
        response = decode(EndTxnResponse, version, encode(answer, version))[0]
        return ErrorCode(response.error_code), response.producer_id, response.producer_epoch


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_a_transaction_ends_and_from_version_5_on_the_next_producer_is_told(version: int, commit: bool) -> None:
    room = Room()

    answer = room.end(version, commit=commit)

    assert answer == ((ErrorCode.NONE, 1000, 1) if version == 5 else (ErrorCode.NONE, -1, -1))
    marker = "1000:1 v2" if version == 5 else "1000:0 v0"
    assert room.coordinator.markers.sent == [f"t {'commit' if commit else 'abort'} {marker} epoch 0 x-0"]


@pytest.mark.parametrize("version", range(6))
def test_while_the_markers_are_written_a_retry_waits(version: int) -> None:
    room = Room()
    room.end(version)

    assert room.end(version)[0] is ErrorCode.CONCURRENT_TRANSACTIONS
    room.coordinator.markers.write_all()
    assert room.end(version) == ((ErrorCode.NONE, 1000, 1) if version == 5 else (ErrorCode.NONE, -1, -1))


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED), (5, ErrorCode.PRODUCER_FENCED)],
)
def test_a_fenced_producer_is_told_in_a_code_that_it_knows(version: int, code: ErrorCode) -> None:
    room = Room()
    room.coordinator.end("t", "1000:0")
    room.coordinator.markers.write_all()
    room.coordinator.init("t")
    room.coordinator.init("t")

    assert room.end(version) == (code, -1, -1)


def test_an_empty_id_and_an_unknown_one_are_refused() -> None:
    room = Room()

    assert room.end(5, transactional_id="")[0] is ErrorCode.INVALID_REQUEST
    assert room.end(5, transactional_id="other")[0] is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_broker_that_does_not_lead_the_partition_is_no_coordinator() -> None:
    handle = end_txn.build(services(transaction_coordinator=Coordinator(exists=False).served))

    with pytest.raises(KafkaError) as refused:
        handle(request_context(26, 5), EndTxnRequest(transactional_id="t"))
    assert refused.value.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
