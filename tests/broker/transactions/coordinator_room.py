"""A coordinator on node 1 over a log in memory, whose markers are written and whose records are committed when a test says so.

    coordinator = Coordinator()
    assert coordinator.init("t") == "NONE 1000:0"

Answers are texts, as in room.py.
"""

from __future__ import annotations

from typing import Any

from broker.loop.deferred import Deferred
from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import TRANSACTION_STATE_TOPIC
from broker.metadata.metadata_cache import MetadataCache
from broker.transactions.add_partitions import AddPartitions
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.descriptions import TransactionFilter
from broker.transactions.end_transaction import EndTransaction
from broker.transactions.init_producer_id import InitProducerId
from broker.transactions.settings import TransactionSettings
from broker.transactions.transaction import Partitions
from config.server import ServerConfig
from protocol.messages.stored.metadata_records import PartitionRecord, TopicRecord
from tests.broker.coordination.memory_log import MemoryLog
from tests.broker.transactions.room import FIRST_PRODUCER_ID, TIMEOUT_MS, HeldMarkers, partitions_of, producer_of, shown_answer
from tests.support.clock import ManualClock

TOPIC_ID = b"t" * 16


class KnownMarkers(HeldMarkers):
    """Knows which markers are not written yet."""

    unmarked_partitions: Partitions | None = None

    def unmarked(self, transactional_id: str, coordinator_epoch: int) -> Partitions | None:
        return self.unmarked_partitions


class Coordinator:
    """A coordinator on node 1, which leads the one partition of `__transaction_state` in epoch 0, if that `exists`."""

    def __init__(self, *, exists: bool = True, clock: ManualClock | None = None, **settings: Any) -> None:
        self.clock = clock or ManualClock()
        self.log = MemoryLog()
        self.markers = KnownMarkers()
        self.settings = TransactionSettings(**settings)
        self.metadata = MetadataCache(ClusterState(), cluster_id="c", node_id=1, config=ServerConfig())
        self.ids = iter(range(FIRST_PRODUCER_ID, 10**9))
        self.served = TransactionCoordinator(
            self.settings,
            self.log,
            self.clock,
            node_id=1,
            next_producer_id=lambda: next(self.ids),
            marker_sender=self.markers,
            transaction_version=lambda: 2,
        )
        self.metadata.subscribe(self.served.on_metadata_delta)
        self.served.start()
        if exists:
            self.create()

    def create(self) -> None:
        self.apply(TopicRecord(name=TRANSACTION_STATE_TOPIC, topic_id=TOPIC_ID), self.partition_record(leader_epoch=0))

    def partition_record(self, leader_epoch: int) -> PartitionRecord:
        return PartitionRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, leader_epoch=leader_epoch, partition_epoch=leader_epoch
        )

    def apply(self, *records: Any) -> None:
        self.metadata.end_offset += len(records)
        self.metadata.apply_committed(list(records))
        self.clock.advance(0)

    def init(self, transactional_id: str) -> str:
        return answered(self.served.init_producer_id(transactional_id, InitProducerId(TIMEOUT_MS)))

    def add(self, transactional_id: str, producer: str, *partitions: str) -> str:
        return answered(
            self.served.add_partitions(transactional_id, AddPartitions(producer_of(producer), partitions_of(*partitions), 2), 0)
        )

    def end(self, transactional_id: str, producer: str, *, commit: bool = True) -> str:
        return answered(self.served.end_transaction(transactional_id, EndTransaction(producer_of(producer), commit, 2)))

    def listed(self, **wanted: Any) -> list[str]:
        listings = self.served.list_transactions(TransactionFilter(**wanted))
        return [f"{each.transactional_id} {each.producer_id} {each.state}" for each in listings if each is not None]


def answered(reply: Deferred) -> str:
    return shown_answer(reply.take()) if reply.is_done else "waits"


def three_ids() -> Coordinator:
    """One ongoing, one complete, one empty."""
    coordinator = Coordinator()
    for number, transactional_id in enumerate("abc"):
        coordinator.init(transactional_id)
        if transactional_id != "c":
            coordinator.add(transactional_id, f"{FIRST_PRODUCER_ID + number}:0", "x-0", "x-1")
    coordinator.end("b", "1001:0")
    coordinator.markers.write_all()
    return coordinator
