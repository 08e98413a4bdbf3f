"""Additions of one broker, over the wire, to the real coordinator of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.cluster.peer_connections import PeerConnections
from broker.handlers.transactions import add_partitions_to_txn
from broker.loop.deferred import Deferred
from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import TRANSACTION_STATE_TOPIC
from broker.metadata.metadata_cache import MetadataCache
from broker.network.client import PeerConnection
from broker.observability.metrics import Metrics
from broker.server.transaction_gauges import add_partition_addition_gauges
from broker.transactions.partition_additions import AdditionSettings, PartitionAdditions, Question, SupportedOperation
from config.server import ServerConfig
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from protocol.messages.stored.metadata_records import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord, TopicRecord
from tests.broker.loop.turn_loop import TurnLoop
from tests.broker.transactions.coordinator_room import TOPIC_ID, Coordinator
from tests.broker.transactions.room import partitions_of, producer_of
from tests.support.doubles import stands_for
from tests.support.services import request_context, services

ADD, VERIFY, VERIFY_OLD = SupportedOperation.ADD_PARTITION, SupportedOperation.GENERIC_ERROR_SUPPORTED, SupportedOperation.DEFAULT_ERROR
WAIT_MAX_MS = 100


@stands_for(PeerConnections, PeerConnection)
class Wire:
    """A connection that takes each request to the handler, and its answer back, in one version."""

    def __init__(self, handle: Callable[..., Any], loop: TurnLoop, version: int) -> None:
        self._handle = handle
        self._loop = loop
        self._version = version

    def get(self, host: str, port: int) -> Wire:
        return self

    def send(self, message: Any, on_answer: Callable[[Any], None], *, version: int | None = None, timeout_ms: int | None = None) -> None:
        request = decode(AddPartitionsToTxnRequest, self._version, encode(message, self._version))[0]
        outcome = self._handle(request_context(24, self._version), request)
        if hasattr(outcome, "send"):
            self._loop.turns.start(outcome).when_done(lambda response: on_answer(self._received(response)))
        else:
            on_answer(self._received(outcome))

    def _received(self, response: Any) -> AddPartitionsToTxnResponse:
        received: AddPartitionsToTxnResponse = decode(AddPartitionsToTxnResponse, self._version, encode(response, self._version))[0]
        return received


class TwoBrokers:
    """Broker 1 coordinates; broker 2 leads the partitions x-0 and x-1, and asks."""

    def __init__(self, version: int = 5) -> None:
        self.coordinator = Coordinator()
        self.loop = TurnLoop()
        self.coordinator.apply(
            TopicRecord(name="x", topic_id=b"x" * 16),
            *(PartitionRecord(partition_id=index, topic_id=b"x" * 16, replicas=[2], isr=[2], leader=2, leader_epoch=0) for index in (0, 1)),
        )
        handle = add_partitions_to_txn.build(
            services(transaction_coordinator=self.coordinator.served, metadata=self.coordinator.metadata, clock=self.coordinator.clock)
        )
        metadata = MetadataCache(ClusterState(), cluster_id="c", node_id=2, config=ServerConfig())
        endpoint = BrokerEndpoint(name="INTERNAL", host="there", port=9, security_protocol=0)
        metadata.apply_committed(
            [
                RegisterBrokerRecord(broker_id=1, end_points=[endpoint], rack=None, fenced=False),
                TopicRecord(name=TRANSACTION_STATE_TOPIC, topic_id=TOPIC_ID),
                PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, leader_epoch=0),
            ]
        )
        self.additions = PartitionAdditions(
            self.coordinator.served,
            metadata,
            lambda: Wire(handle, self.loop, version),  # type: ignore[arg-type, return-value]
            self.coordinator.clock,
            AdditionSettings(),
            listener_name="INTERNAL",
            is_verification_enabled=lambda: True,
        )

    def start(self, producer: str, *partitions: str, operation: SupportedOperation = ADD) -> Deferred:
        answer = self.additions.ask(Question("t", producer_of(producer), partitions_of(*partitions), operation, 30_000))
        self.loop.run()
        return answer

    def ask(self, producer: str, *partitions: str, operation: SupportedOperation = ADD) -> dict[tuple[str, int], ErrorCode] | str:
        return self.told(self.start(producer, *partitions, operation=operation))

    def told(self, answer: Deferred) -> dict[tuple[str, int], ErrorCode] | str:
        self.loop.run()
        return answer.value if answer.is_done else "waits"


@pytest.mark.parametrize("version", [4, 5])
def test_what_is_added_is_part_of_the_transaction_and_nothing_else_is(version: int) -> None:
    two = TwoBrokers(version)
    two.coordinator.init("t")

    assert two.ask("1000:0", "x-0") == {}
    assert two.ask("1000:0", "x-0", operation=VERIFY) == {}
    assert two.ask("1000:0", "x-0", "x-1", operation=VERIFY) == {("x", 1): ErrorCode.TRANSACTION_ABORTABLE}
    assert two.ask("1000:0", "x-1", operation=VERIFY_OLD) == {("x", 1): ErrorCode.INVALID_TXN_STATE}


@pytest.mark.parametrize("operation", SupportedOperation)
def test_a_fenced_producer_and_an_unknown_one_are_told(operation: SupportedOperation) -> None:
    two = TwoBrokers()
    two.coordinator.init("t")
    two.coordinator.init("t")  # by another instance, which gets epoch 1

    assert two.ask("1000:0", "x-0", operation=operation) == {("x", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert two.ask("77:0", "x-0", operation=operation) == {("x", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}


def test_a_partition_that_the_coordinator_does_not_know_yet_adds_nothing() -> None:
    two = TwoBrokers()
    two.coordinator.init("t")

    assert two.ask("1000:0", "x-0", "new-0") == {
        ("x", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("new", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert two.ask("1000:0", "x-0", operation=VERIFY) == {("x", 0): ErrorCode.TRANSACTION_ABORTABLE}


def test_an_addition_waits_for_the_markers_of_the_transaction_before() -> None:
    two = TwoBrokers()
    two.coordinator.init("t")
    two.ask("1000:0", "x-0")
    two.coordinator.end("t", "1000:0")

    answer = two.start("1000:1", "x-1")
    assert two.told(answer) == "waits"
    two.coordinator.markers.write_all()

    assert two.told(answer) == {}


def test_an_addition_that_waits_too_long_is_a_concurrent_transaction() -> None:
    two = TwoBrokers()
    two.coordinator.init("t")
    two.ask("1000:0", "x-0")
    two.coordinator.end("t", "1000:0")

    answer = two.start("1000:1", "x-1")
    two.coordinator.clock.advance(WAIT_MAX_MS)

    assert two.told(answer) == {("x", 1): ErrorCode.CONCURRENT_TRANSACTIONS}


def test_what_was_refused_and_how_long_it_took_can_be_scraped() -> None:
    two = TwoBrokers()
    metrics = Metrics()
    add_partition_addition_gauges(metrics, two.additions)
    two.coordinator.init("t")

    two.ask("1000:0", "x-0")
    two.ask("1000:0", "x-1", operation=VERIFY)

    values = {gauge.name.removeprefix("kafka_server_addpartitionstotxnmanager_"): gauge.values for gauge in metrics.snapshot().gauges}
    assert values["verificationfailurerate_count"] == (((), 1),)
    assert values["verificationtimems_count"] == (((), 2),)
    assert [labels for labels, _ in values["verificationtimems"]] == [("0.5",), ("0.95",), ("0.99",), ("0.999",)]
