"""TxnOffsetCommit: when the transaction's coordinator is asked, and which error goes where."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

import pytest

from broker.handlers.transactions import txn_offset_commit
from broker.loop.deferred import Deferred
from broker.metadata.image import GROUP_METADATA_TOPIC
from broker.transactions.partition_additions import SupportedOperation
from broker.transactions.transaction import ProducerIdAndEpoch
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.coordination.memory_log import MemoryLog
from tests.broker.groups.harness import GroupHandlers, over_the_wire
from tests.broker.handlers.transactions.held_coordinator import HeldAdditions
from tests.broker.loop.turn_loop import TurnLoop


class Room:
    """Topic `t` has two partitions."""

    def __init__(self) -> None:
        self.handlers = GroupHandlers()
        self.additions = HeldAdditions()
        self.loop = TurnLoop()
        self.handlers.services = self.handlers.services._replace(partition_additions=self.additions)  # type: ignore[arg-type]

    def start(self, version: int, asked: TxnOffsetCommitRequest) -> Any:
        outcome = self.handlers.send(txn_offset_commit, version, over_the_wire(asked, version))
        if isinstance(outcome, GeneratorType):
            outcome = self.loop.turns.start(outcome)
            self.loop.run()
        return outcome

    def errors(self, outcome: Any, version: int) -> dict[str, dict[int, int]]:
        self.loop.run()
        if isinstance(outcome, Deferred):
            assert outcome.is_done, "the request still waits"
            outcome = outcome.value
        topics = over_the_wire(outcome, version).topics
        assert len({topic.name for topic in topics}) == len(topics)
        return {topic.name: {each.partition_index: each.error_code for each in topic.partitions} for topic in topics}


def request(*, epoch: int = 0, group: str = "g", **topics: list[int]) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group,
        producer_id=9,
        producer_epoch=epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in partitions],
            )
            for name, partitions in topics.items()
        ],
    )


@pytest.mark.parametrize("version", range(6))
def test_the_first_commit_of_a_transaction_asks_its_coordinator_and_the_next_one_does_not(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = Room()

    waiting = room.start(version, request(t=[0]))
    assert not waiting.is_done
    room.additions.answer()

    assert room.errors(waiting, version) == {"t": {0: 0}}
    monkeypatch.setattr(MemoryLog, "start_verification", lambda *_, **__: None)  # the transaction is open there
    assert room.errors(room.start(version, request(t=[0, 1])), version) == {"t": {0: 0, 1: 0}}
    (asked,) = room.additions.asked
    partition = room.handlers.services.group_coordinator.partition_for("g")
    assert (asked.transactional_id, asked.producer) == ("x", ProducerIdAndEpoch(9, 0))
    assert asked.partitions == {GROUP_METADATA_TOPIC: {partition}}


@pytest.mark.parametrize(
    ("version", "operation"),
    [
        (3, SupportedOperation.DEFAULT_ERROR),
        (4, SupportedOperation.GENERIC_ERROR_SUPPORTED),
        (5, SupportedOperation.ADD_PARTITION),
    ],
)
def test_the_version_decides_what_the_coordinator_is_asked(version: int, operation: SupportedOperation) -> None:
    room = Room()

    room.start(version, request(t=[0]))

    assert [each.operation for each in room.additions.asked] == [operation]


@pytest.mark.parametrize(
    ("version", "told", "code"),
    [
        (5, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (5, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (2, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (1, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (3, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_refusal_of_the_coordinator_is_told_for_each_partition(version: int, told: ErrorCode, code: ErrorCode) -> None:
    room = Room()

    waiting = room.start(version, request(t=[0, 1]))
    room.additions.answer(told)

    assert room.errors(waiting, version) == {"t": {0: code, 1: code}}


def test_partitions_that_do_not_exist_are_refused_and_the_others_committed() -> None:
    room = Room()

    waiting = room.start(5, request(t=[0, 2], nope=[0]))
    room.additions.answer()

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert room.errors(waiting, 5) == {"t": {0: 0, 2: unknown}, "nope": {0: unknown}}


def test_nobody_is_asked_for_what_does_not_exist() -> None:
    room = Room()

    assert room.errors(room.start(5, request(nope=[0])), 5) == {"nope": {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}
    assert not room.additions.asked


def test_without_verification_only_clients_that_add_are_asked_for() -> None:
    room = Room()
    room.additions.is_enabled = False

    old = room.errors(room.start(4, request(t=[0])), 4)
    new = room.start(5, request(epoch=1, t=[0]))

    assert old == {"t": {0: 0}}
    assert not new.is_done
    assert [each.producer.producer_epoch for each in room.additions.asked] == [1]


def test_what_the_groups_log_refuses_is_told_before_anyone_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()

    def refuse(*_: Any, **__: Any) -> None:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)

    monkeypatch.setattr(MemoryLog, "start_verification", refuse)

    assert room.errors(room.start(5, request(t=[0])), 5) == {"t": {0: ErrorCode.INVALID_PRODUCER_EPOCH}}
    assert not room.additions.asked


def test_many_partitions_are_committed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txn_offset_commit, "PARTITIONS_PER_BATCH", 1)
    room = Room()

    waiting = room.start(5, request(t=[0, 1]))
    room.additions.answer()

    assert room.errors(waiting, 5) == {"t": {0: 0, 1: 0}}
    assert len(room.additions.asked) == 1
