"""What a broker asks transaction coordinators, here and on another broker: requests, answers, and who waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from broker.cluster.peer_connections import PeerConnections
from broker.loop.deferred import Deferred
from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import TRANSACTION_STATE_TOPIC, MetadataDelta
from broker.metadata.metadata_cache import MetadataCache
from broker.network.client import PeerConnection
from broker.transactions.add_partitions import AddPartitions
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.partition_additions import (
    CONNECTIONS_MAX,
    ENTRIES_PER_REQUEST_MAX,
    AdditionSettings,
    PartitionAdditions,
    Question,
    SupportedOperation,
    operation_of_produce,
    operation_of_txn_offset_commit,
)
from broker.transactions.transaction import ProducerIdAndEpoch
from config.server import ServerConfig
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from protocol.messages.stored.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.broker.transactions.room import partitions_of, producer_of
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

TOPIC_ID = b"t" * 16
HERE, ELSEWHERE = 1, 2
ENDPOINT = BrokerEndpoint(name="INTERNAL", host="there", port=9, security_protocol=0)
BACKOFF_MAX_MS = 100
REQUEST_TIMEOUT_MS = 5_000


@stands_for(TransactionCoordinator, own=("added", "verdict"))
class HeldCoordinator:
    """Keeps `added` waiting; what it verifies gets `verdict`, which may be an exception."""

    def __init__(self) -> None:
        self.added: list[tuple[str, AddPartitions, float, Deferred]] = []
        self.verdict: Any = ErrorCode.NONE

    def partition_for(self, transactional_id: str) -> int:
        return 0

    def add_partitions(self, transactional_id: str, request: AddPartitions, timeout_ms: float) -> Deferred:
        self.added.append((transactional_id, request, timeout_ms, Deferred()))
        return self.added[-1][-1]

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Mapping[str, Collection[int]]
    ) -> ErrorCode | dict[str, dict[int, ErrorCode]]:
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict  # type: ignore[no-any-return]


@stands_for(PeerConnections, PeerConnection)
class HeldConnections:
    """Connections, and each connection: requests in `sent` are answered by the test."""

    def __init__(self, sent: list[tuple[AddPartitionsToTxnRequest, Callable[[Any], None]]], dropped: list[tuple[str, int]]) -> None:
        self._sent = sent
        self._dropped = dropped

    def get(self, host: str, port: int) -> HeldConnections:
        assert (host, port) == ("there", 9)
        return self

    def send(self, message: Any, on_answer: Callable[[Any], None], *, version: int | None = None, timeout_ms: int | None = None) -> None:
        request = decode(AddPartitionsToTxnRequest, 5, encode(message, 5))[0]
        self._sent.append((request, on_answer))

    def drop(self, host: str, port: int) -> None:
        self._dropped.append((host, port))

    async def close(self) -> None:
        sent, self._sent[:] = list(self._sent), []
        for _, on_answer in sent:
            on_answer(None)


class Room:
    """Additions on broker 1; the coordinator of every id is in broker `leader`."""

    def __init__(self, leader: int = ELSEWHERE, *, is_fenced: bool = False) -> None:
        self.clock = ManualClock()
        self.coordinator = HeldCoordinator()
        self.sent: list[tuple[AddPartitionsToTxnRequest, Callable[[Any], None]]] = []
        self.dropped: list[tuple[str, int]] = []
        self.connections_count = 0
        self.metadata = MetadataCache(ClusterState(), cluster_id="c", node_id=HERE, config=ServerConfig())
        self.metadata.apply_committed(
            [
                RegisterBrokerRecord(broker_id=HERE, end_points=[], rack=None, fenced=False),
                RegisterBrokerRecord(broker_id=ELSEWHERE, end_points=[ENDPOINT], broker_epoch=0, rack=None, fenced=is_fenced),
                TopicRecord(name=TRANSACTION_STATE_TOPIC, topic_id=TOPIC_ID),
                PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[leader], isr=[leader], leader=leader, leader_epoch=0),
            ]
        )
        self.additions = PartitionAdditions(
            self.coordinator,  # type: ignore[arg-type]
            self.metadata,
            self._connect,
            self.clock,
            AdditionSettings(20, BACKOFF_MAX_MS, REQUEST_TIMEOUT_MS),
            listener_name="INTERNAL",
            is_verification_enabled=lambda: True,
        )

    def _connect(self) -> Any:
        self.connections_count += 1
        return HeldConnections(self.sent, self.dropped)

    def ask(
        self,
        transactional_id: str,
        producer: str,
        *partitions: str,
        operation: SupportedOperation = SupportedOperation.ADD_PARTITION,
        timeout_ms: int = 30_000,
    ) -> Deferred:
        return self.additions.ask(Question(transactional_id, producer_of(producer), partitions_of(*partitions), operation, timeout_ms))

    def occupy(self) -> None:
        """Make all connections busy."""
        for number in range(CONNECTIONS_MAX):
            self.ask(f"busy-{number}", "1:0", "z-0")

    def answer(self, index: int = 0, **codes: ErrorCode) -> None:
        """Answer a request: every partition with NONE, or with the code that its id has."""
        request, on_answer = self.sent.pop(index)
        results = [
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=partition, partition_error_code=codes.get(each.transactional_id, ErrorCode.NONE)
                            )
                            for partition in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
        on_answer(AddPartitionsToTxnResponse(results_by_transaction=results))

    def ids_sent(self) -> list[list[str]]:
        return [[each.transactional_id for each in request.transactions] for request, _ in self.sent]


def refusals(answer: Deferred) -> dict[tuple[str, int], ErrorCode] | str:
    return answer.value if answer.is_done else "waits"


# -- the coordinator in this broker --


def test_partitions_are_added_by_the_coordinator_here_without_a_request() -> None:
    room = Room(HERE)

    answer = room.ask("t", "7:0", "a-0", "b-1")
    assert refusals(answer) == "waits"
    transactional_id, request, timeout_ms, added = room.coordinator.added[0]
    added.complete(ErrorCode.NONE)

    assert (transactional_id, request.producer, request.transaction_version, timeout_ms) == ("t", producer_of("7:0"), 2, BACKOFF_MAX_MS)
    assert request.partitions == partitions_of("a-0", "b-1")
    assert refusals(answer) == {}
    assert not room.sent


def test_an_old_clients_partitions_are_verified_here() -> None:
    room = Room(HERE)
    room.coordinator.verdict = {"a": {0: ErrorCode.NONE, 1: ErrorCode.TRANSACTION_ABORTABLE}}

    answer = room.ask("t", "7:0", "a-0", "a-1", operation=SupportedOperation.GENERIC_ERROR_SUPPORTED)

    assert refusals(answer) == {("a", 1): ErrorCode.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize("operation", [SupportedOperation.ADD_PARTITION, SupportedOperation.DEFAULT_ERROR])
def test_a_loading_coordinator_here_is_told(operation: SupportedOperation) -> None:
    room = Room(HERE)
    room.coordinator.verdict = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    answer = room.ask("t", "7:0", "a-0", operation=operation)
    for *_, added in room.coordinator.added:
        added.complete(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    assert refusals(answer) == {("a", 0): ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


# -- another broker's --


@pytest.mark.parametrize("operation", SupportedOperation)
def test_another_broker_is_asked_to_add_or_to_verify(operation: SupportedOperation) -> None:
    room = Room()

    answer = room.ask("t", "7:3", "a-0", "a-1", operation=operation)
    (asked,) = room.sent[0][0].transactions
    room.answer()

    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("t", 7, 3)
    assert asked.verify_only is not operation.supports_epoch_bump
    assert [(topic.name, topic.partitions) for topic in asked.topics] == [("a", [0, 1])]
    assert refusals(answer) == {}


def test_questions_that_come_while_all_connections_are_busy_share_a_request() -> None:
    room = Room()
    room.occupy()

    answers = [room.ask("t", "7:0", "a-0"), room.ask("u", "8:0", "a-0")]
    assert room.ids_sent() == [[f"busy-{number}"] for number in range(CONNECTIONS_MAX)]
    room.answer()
    assert room.ids_sent()[-1] == ["t", "u"]
    room.answer(-1, u=ErrorCode.INVALID_TXN_STATE)

    assert [refusals(answer) for answer in answers] == [{}, {("a", 0): ErrorCode.INVALID_TXN_STATE}]
    assert room.connections_count == CONNECTIONS_MAX


def test_a_request_has_no_more_entries_than_any_broker_takes() -> None:
    """What is left waits for the next connection that is free; a transaction that is too large alone is asked alone."""
    room = Room()
    room.occupy()
    half = [f"topic{number}-0" for number in range(ENTRIES_PER_REQUEST_MAX // 2)]

    for number, partitions in enumerate((half, half, [*half, *(f"other{each}" for each in half)])):
        room.ask(f"t{number}", f"{number}:0", *partitions)
    for _ in range(3):
        room.answer()

    assert room.ids_sent()[-3:] == [["t0"], ["t1"], ["t2"]]


def test_questions_of_one_id_for_different_partitions_go_one_after_the_other() -> None:
    room = Room()
    room.occupy()

    first, second = room.ask("t", "7:0", "a-0"), room.ask("t", "7:0", "b-0")
    room.answer()
    assert [topic.name for topic in room.sent[-1][0].transactions[0].topics] == ["a"]
    room.answer()

    assert [topic.name for topic in room.sent[-1][0].transactions[0].topics] == ["b"]
    assert (refusals(first), refusals(second)) == ("waits", "waits")


def test_a_newer_epoch_fences_the_question_that_waits() -> None:
    room = Room()
    room.occupy()

    old, new = room.ask("t", "7:0", "a-0"), room.ask("t", "7:1", "b-0")
    room.answer()

    assert refusals(old) == {("a", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert [each.producer_epoch for each in room.sent[-1][0].transactions] == [1]
    assert refusals(new) == "waits"


def test_an_older_epoch_is_fenced_by_the_question_that_waits() -> None:
    room = Room()
    room.occupy()

    new, old = room.ask("t", "7:1", "a-0"), room.ask("t", "7:0", "a-0")

    assert refusals(old) == {("a", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert refusals(new) == "waits"


def test_a_partition_that_is_asked_for_again_ends_the_older_question() -> None:
    room = Room()
    room.occupy()

    first, second = room.ask("t", "7:0", "a-0"), room.ask("t", "7:0", "a-0", "a-1")

    assert refusals(first) == {("a", 0): ErrorCode.NETWORK_EXCEPTION}
    assert refusals(second) == "waits"


def test_epochs_of_different_producer_ids_are_not_compared() -> None:
    """After epoch 32766 a producer gets another id and begins with epoch 0."""
    room = Room()
    room.occupy()

    answers = [room.ask("t", "7:32766", "a-0"), room.ask("t", "8:0", "a-0")]

    assert [refusals(answer) for answer in answers] == ["waits", "waits"]


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (None, ErrorCode.NETWORK_EXCEPTION),
        (AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ErrorCode.INVALID_TXN_STATE),
        (AddPartitionsToTxnResponse(error_code=ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
        (AddPartitionsToTxnResponse(), ErrorCode.NETWORK_EXCEPTION),
    ],
)
def test_an_answer_for_the_whole_request_is_that_of_each_partition(response: AddPartitionsToTxnResponse | None, code: ErrorCode) -> None:
    room = Room()

    answer = room.ask("t", "7:0", "a-0", "b-1")
    room.sent[0][1](response)

    assert refusals(answer) == {("a", 0): code, ("b", 1): code}


@pytest.mark.parametrize(
    ("told", "operation", "code"),
    [
        (ErrorCode.PRODUCER_FENCED, SupportedOperation.ADD_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, SupportedOperation.GENERIC_ERROR_SUPPORTED, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, SupportedOperation.DEFAULT_ERROR, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, SupportedOperation.ADD_PARTITION, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_codes_that_a_producer_does_not_know_are_exchanged(told: ErrorCode, operation: SupportedOperation, code: ErrorCode) -> None:
    room = Room()

    answer = room.ask("t", "7:0", "a-0", operation=operation)
    room.answer(t=told)

    assert refusals(answer) == {("a", 0): code}


def test_a_fenced_coordinators_broker_is_not_asked() -> None:
    room = Room(is_fenced=True)

    assert refusals(room.ask("t", "7:0", "a-0")) == {("a", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_without_a_leader_there_is_no_coordinator() -> None:
    room = Room(-1)

    assert refusals(room.ask("t", "7:0", "a-0")) == {("a", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}


# -- time, connections --


@pytest.mark.parametrize(("timeout_ms", "ends_ms"), [(700, 700), (30_000, REQUEST_TIMEOUT_MS)])
@pytest.mark.parametrize("leader", [HERE, ELSEWHERE])
def test_a_question_ends_after_its_timeout_and_a_late_answer_does_nothing(leader: int, timeout_ms: int, ends_ms: int) -> None:
    room = Room(leader)

    answer = room.ask("t", "7:0", "a-0", timeout_ms=timeout_ms)
    room.clock.advance(ends_ms - 1)
    assert refusals(answer) == "waits"
    room.clock.advance(1)
    assert refusals(answer) == {("a", 0): ErrorCode.NETWORK_EXCEPTION}

    for *_, added in room.coordinator.added:
        added.complete(ErrorCode.NONE)
    while room.sent:
        room.answer()
    assert room.additions.failures_count == 1


def test_a_question_that_is_abandoned_is_not_sent() -> None:
    room = Room()
    room.occupy()

    room.ask("t", "7:0", "a-0").abandon()
    room.answer()

    assert room.ids_sent() == [[f"busy-{number}"] for number in range(1, CONNECTIONS_MAX)]


@pytest.mark.parametrize(
    ("change", "is_dropped"),
    [
        (BrokerRegistrationChangeRecord(broker_id=ELSEWHERE, broker_epoch=0, fenced=1), True),
        (BrokerRegistrationChangeRecord(broker_id=ELSEWHERE, broker_epoch=0, in_controlled_shutdown=1), False),
        (RegisterBrokerRecord(broker_id=ELSEWHERE, broker_epoch=5, end_points=[ENDPOINT], rack=None, fenced=False), True),
    ],
)
def test_connections_to_a_broker_that_is_fenced_or_new_are_dropped(change: Any, is_dropped: bool) -> None:
    room = Room()
    room.ask("t", "7:0", "a-0")

    room.metadata.apply_committed([change])
    room.additions.on_metadata_delta(MetadataDelta(changed_brokers=(ELSEWHERE,)))

    assert room.dropped == ([("there", 9)] if is_dropped else [])


async def test_closing_ends_what_is_asked_and_asks_nothing_more() -> None:
    room = Room()
    room.occupy()
    answer = room.ask("t", "7:0", "a-0")

    await room.additions.close()

    assert refusals(answer) == {("a", 0): ErrorCode.NETWORK_EXCEPTION}
    assert refusals(room.ask("u", "8:0", "a-0")) == {("a", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert not room.sent


def test_refused_partitions_and_times_are_counted() -> None:
    room = Room()
    room.ask("t", "7:0", "a-0", "a-1")
    room.ask("u", "8:0", "a-0")
    room.clock.advance(3)

    room.answer(t=ErrorCode.TRANSACTION_ABORTABLE)
    room.answer()

    assert room.additions.failures_count == 2
    assert (room.additions.times.requests_count, room.additions.times.total_ns) == (2, 6_000_000)


def test_a_pause_ends_after_the_backoff() -> None:
    room = Room()

    over = room.additions.pause()
    assert not over.is_done
    room.clock.advance(20)

    assert over.is_done


def test_versions_tell_what_a_client_knows() -> None:
    default, generic, add = SupportedOperation

    assert [operation_of_produce(version) for version in (3, 10, 11, 12, 13)] == [default, default, generic, add, add]
    assert [operation_of_txn_offset_commit(version) for version in (0, 3, 4, 5)] == [default, default, generic, add]
