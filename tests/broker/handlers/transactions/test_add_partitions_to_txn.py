"""AddPartitionsToTxn: what clients and brokers ask, and in which codes they are answered."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

import pytest

from broker.handlers.transactions import add_partitions_to_txn
from broker.loop.deferred import Deferred
from broker.transactions.transaction import ProducerIdAndEpoch
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.broker.groups.harness import GroupHandlers, over_the_wire
from tests.broker.handlers.transactions.held_coordinator import HeldCoordinator
from tests.broker.loop.turn_loop import TurnLoop
from tests.support.services import request_context

WAIT_MAX_MS = 100


class Room:
    """Topic `t` has two partitions."""

    def __init__(self) -> None:
        self.coordinator = HeldCoordinator()
        self.loop = TurnLoop()
        services = GroupHandlers().services._replace(transaction_coordinator=self.coordinator)  # type: ignore[arg-type]
        self.handle = add_partitions_to_txn.build(services)

    def start(self, version: int, request: AddPartitionsToTxnRequest) -> Deferred:
        outcome = self.handle(request_context(24, version), over_the_wire(request, version))
        if isinstance(outcome, GeneratorType):
            waiting = self.loop.turns.start(outcome)
            self.loop.run()
            return waiting
        done = Deferred()
        done.complete(outcome)
        return done

    def finish(self, waiting: Deferred, version: int) -> AddPartitionsToTxnResponse:
        self.loop.run()
        response: AddPartitionsToTxnResponse = over_the_wire(waiting.take(), version)
        return response


def topics(**partitions: list[int]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in partitions.items()]


def of_client(transactional_id: str = "x", **partitions: list[int]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=3,
        v3_and_below_topics=topics(**partitions),
    )


def of_broker(transactional_id: str = "x", *, verify_only: bool = False, **partitions: list[int]) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id, producer_id=7, producer_epoch=3, verify_only=verify_only, topics=topics(**partitions)
    )


def errors(results: Any) -> dict[str, dict[int, int]]:
    return {topic.name: {each.partition_index: each.partition_error_code for each in topic.results_by_partition} for topic in results}


def errors_by_id(response: AddPartitionsToTxnResponse) -> dict[str, dict[str, dict[int, int]]]:
    return {each.transactional_id: errors(each.topic_results) for each in response.results_by_transaction}


@pytest.mark.parametrize("version", range(4))
def test_a_client_is_answered_when_its_partitions_are_added(version: int) -> None:
    room = Room()

    waiting = room.start(version, of_client(t=[0, 1]))
    ((transactional_id, addition, timeout_ms),) = room.coordinator.added
    assert not waiting.is_done
    room.coordinator.answer()

    assert errors(room.finish(waiting, version).results_by_topic_v3_and_below) == {"t": {0: 0, 1: 0}}
    assert (transactional_id, timeout_ms, addition.transaction_version) == ("x", WAIT_MAX_MS, 0)
    assert (addition.producer, addition.partitions) == (ProducerIdAndEpoch(7, 3), {"t": {0, 1}})


@pytest.mark.parametrize("version", [4, 5])
def test_a_brokers_transactions_are_begun_together_and_answered_together(version: int) -> None:
    room = Room()
    room.coordinator.verdict = {"t": {0: ErrorCode.NONE, 1: ErrorCode.TRANSACTION_ABORTABLE}}

    waiting = room.start(
        version,
        AddPartitionsToTxnRequest(transactions=[of_broker("x", t=[0]), of_broker("y", t=[1]), of_broker("z", verify_only=True, t=[0, 1])]),
    )
    assert [(each[0], each[1].transaction_version) for each in room.coordinator.added] == [("x", 2), ("y", 2)]
    room.coordinator.answer()
    room.loop.run()
    assert not waiting.is_done
    room.coordinator.answer(ErrorCode.PRODUCER_FENCED)

    assert errors_by_id(room.finish(waiting, version)) == {
        "x": {"t": {0: 0}},
        "y": {"t": {1: ErrorCode.PRODUCER_FENCED}},
        "z": {"t": {0: 0, 1: ErrorCode.TRANSACTION_ABORTABLE}},
    }


@pytest.mark.parametrize("version", [3, 5])
def test_one_unknown_partition_makes_the_others_not_attempted(version: int) -> None:
    room = Room()
    request = of_client(t=[0, 2], nope=[0]) if version < 4 else AddPartitionsToTxnRequest(transactions=[of_broker(t=[0, 2], nope=[0])])

    response = room.finish(room.start(version, request), version)

    results = response.results_by_topic_v3_and_below if version < 4 else response.results_by_transaction[0].topic_results
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors(results) == {"t": {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 2: unknown}, "nope": {0: unknown}}
    assert not room.coordinator.added


def test_a_client_may_not_add_a_partition_of_an_internal_topic() -> None:
    room = Room()

    response = room.finish(room.start(3, of_client(t=[0], __consumer_offsets=[0])), 3)

    assert errors(response.results_by_topic_v3_and_below) == {
        "t": {0: ErrorCode.OPERATION_NOT_ATTEMPTED},
        "__consumer_offsets": {0: ErrorCode.TOPIC_AUTHORIZATION_FAILED},
    }
    assert not room.coordinator.added


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, ErrorCode.INVALID_PRODUCER_EPOCH), (1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
def test_a_fenced_producer_is_told_in_a_code_that_it_knows(version: int, code: ErrorCode) -> None:
    room = Room()

    waiting = room.start(version, of_client(t=[0]))
    room.coordinator.answer(ErrorCode.PRODUCER_FENCED)

    assert errors(room.finish(waiting, version).results_by_topic_v3_and_below) == {"t": {0: code}}


def test_a_broker_that_does_not_coordinate_the_id_says_so() -> None:
    room = Room()
    room.coordinator.refusal = KafkaError(ErrorCode.NOT_COORDINATOR)

    response = room.finish(room.start(3, of_client(t=[0, 1])), 3)

    assert errors(response.results_by_topic_v3_and_below) == {"t": {0: ErrorCode.NOT_COORDINATOR, 1: ErrorCode.NOT_COORDINATOR}}


@pytest.mark.parametrize("version", [3, 5])
def test_an_empty_transactional_id_is_invalid(version: int) -> None:
    room = Room()
    request = of_client("", t=[0]) if version < 4 else AddPartitionsToTxnRequest(transactions=[of_broker("", t=[0])])

    response = room.finish(room.start(version, request), version)

    results = response.results_by_topic_v3_and_below if version < 4 else response.results_by_transaction[0].topic_results
    assert errors(results) == {"t": {0: ErrorCode.INVALID_REQUEST}}


def test_an_error_of_the_whole_request_goes_to_each_partition_of_a_client_and_once_to_a_broker() -> None:
    error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    client = over_the_wire(add_partitions_to_txn.error_response(of_client(t=[0]), error), 3)
    broker = over_the_wire(add_partitions_to_txn.error_response(AddPartitionsToTxnRequest(transactions=[of_broker(t=[0])]), error), 5)

    assert errors(client.results_by_topic_v3_and_below) == {"t": {0: error.code}}
    assert broker.error_code == error.code
