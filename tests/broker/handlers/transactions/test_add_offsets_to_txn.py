"""AddOffsetsToTxn: the group's partition joins the transaction."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers.transactions import add_offsets_to_txn
from broker.loop.deferred import Deferred
from broker.metadata.image import GROUP_METADATA_TOPIC
from broker.transactions.transaction import ProducerIdAndEpoch
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tests.broker.groups.harness import GroupHandlers, over_the_wire
from tests.broker.handlers.transactions.held_coordinator import HeldCoordinator

REQUEST = AddOffsetsToTxnRequest(transactional_id="x", producer_id=7, producer_epoch=3, group_id="g")


class Room:
    def __init__(self) -> None:
        self.handlers = GroupHandlers()
        self.coordinator = HeldCoordinator()
        self.handlers.services = self.handlers.services._replace(transaction_coordinator=self.coordinator)  # type: ignore[arg-type]

    def start(self, version: int, request: AddOffsetsToTxnRequest = REQUEST) -> Deferred:
        waiting: Deferred = self.handlers.send(add_offsets_to_txn, version, over_the_wire(request, version))
        return waiting


def code(waiting: Deferred, version: int) -> Any:
    return over_the_wire(waiting.take(), version).error_code


@pytest.mark.parametrize("version", range(5))
def test_the_groups_partition_is_added(version: int) -> None:
    room = Room()

    waiting = room.start(version)
    ((transactional_id, addition, _),) = room.coordinator.added
    assert not waiting.is_done
    room.coordinator.answer()

    assert code(waiting, version) == 0
    partition = room.handlers.services.group_coordinator.partition_for("g")
    assert (transactional_id, addition.producer, addition.transaction_version) == ("x", ProducerIdAndEpoch(7, 3), 0)
    assert addition.partitions == {GROUP_METADATA_TOPIC: {partition}}


@pytest.mark.parametrize(
    ("version", "told"),
    [(0, ErrorCode.INVALID_PRODUCER_EPOCH), (1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
def test_a_fenced_producer_is_told_in_a_code_that_it_knows(version: int, told: ErrorCode) -> None:
    room = Room()

    waiting = room.start(version)
    room.coordinator.answer(ErrorCode.PRODUCER_FENCED)

    assert code(waiting, version) == told


def test_an_empty_transactional_id_is_invalid() -> None:
    room = Room()

    with pytest.raises(KafkaError) as refusal:
        room.start(3, AddOffsetsToTxnRequest(transactional_id="", group_id="g"))

    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_the_topic_is_created_at_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()
    monkeypatch.setattr(add_offsets_to_txn, "GROUP_METADATA_TOPIC", "__not_there_yet")

    with pytest.raises(KafkaError) as refusal:
        room.start(3)

    assert refusal.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.handlers.creator.asked_for == ["__not_there_yet"]
    assert not room.coordinator.added


def test_a_refusal_is_one_code() -> None:
    response = add_offsets_to_txn.error_response(REQUEST, KafkaError(ErrorCode.NOT_COORDINATOR))

    assert over_the_wire(response, 3).error_code == ErrorCode.NOT_COORDINATOR
