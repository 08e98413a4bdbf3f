"""Broker 1 with its marker channels: real logs here, fake peers elsewhere, metadata by records.

room = ChannelsRoom(tmp_path)
room.topic("b", leader=2)
room.end("t", "b-0")
room.answer()
assert room.written == ["t"]
"""

from __future__ import annotations

from pathlib import Path

from broker.transactions.collaborators import MarkerSender
from broker.transactions.local_markers import LocalMarkers
from broker.transactions.marker_channels import MarkerChannels
from broker.transactions.transaction import NO_PRODUCER_ID, Transaction, new_transaction
from protocol.errors import ErrorCode
from protocol.records import EndTransactionMarker, iterate_headers, read_end_transaction_marker
from tests.broker.replication.world import World
from tests.broker.transactions.fake_peers import FakePeers
from tests.broker.transactions.held_offsets import HeldOffsets
from tests.broker.transactions.room import partitions_of, shown
from tests.support.clock import ManualClock

EPOCH = 5
STATE_PARTITION = 7


class ChannelsRoom:
    """See the module's docstring. `written` are the transactions that ended, in order."""

    def __init__(self, directory: Path, *, state_partition: int = STATE_PARTITION) -> None:
        self.world = World(directory)
        self.offsets = HeldOffsets()
        self.peers = FakePeers()
        self.written: list[str] = []
        self.channels = MarkerChannels(
            self.world.metadata,
            LocalMarkers(self.world.replica_manager.produce_path, self.offsets, timeout_ms=30_000),  # type: ignore[arg-type]
            lambda: self.peers,  # type: ignore[arg-type,return-value]
            self.world.clock,
            partition_for=lambda transactional_id: state_partition,
            listener_name="PLAINTEXT",
            request_timeout_ms=30_000,
        )
        self.world.metadata.subscribe(self.channels.on_metadata_delta)

    @property
    def clock(self) -> ManualClock:
        return self.world.clock

    def topic(self, name: str, *, leader: int, partitions: int = 1) -> None:
        """Broker 1 has a replica, as have brokers 2 and 3."""
        replicas = (1,) if leader == 1 else (2, 3)
        self.world.create_topic(name, replicas=replicas, leader=leader, partitions=partitions)
        self.turn()

    def move(self, name: str, leader: int, index: int = 0) -> None:
        self.world.change_partition(name, index, leader=leader)
        self.turn()

    def end(self, transactional_id: str, *partitions: str, producer_id: int = 1, epoch: int = EPOCH, **fields: int | bool) -> None:
        """A transaction's outcome is decided and committed."""
        sender: MarkerSender = self.channels
        transaction = prepared(producer_id, *partitions, **fields)  # type: ignore[arg-type]
        sender.send(transactional_id, transaction, epoch, lambda: self.written.append(transactional_id))
        self.turn()

    def turn(self) -> None:
        self.clock.advance(0)

    def answer(self, errors: dict[str, ErrorCode] | None = None) -> None:
        self.peers.take().answer(errors)
        self.turn()

    def unmarked(self, transactional_id: str, epoch: int = EPOCH) -> str:
        return shown(self.channels.unmarked(transactional_id, epoch) or {})

    def markers(self, topic: str, index: int = 0) -> list[EndTransactionMarker]:
        records = self.world.fetch(topic, 0, index=index)[0].records
        data = records if isinstance(records, bytes) else records.read()
        found = [read_end_transaction_marker(data, position, header) for position, header in iterate_headers(data)]
        return [marker for marker in found if marker is not None]


def prepared(producer_id: int, *partitions: str, commit: bool = True, producer_epoch: int = 3, version: int = 2) -> Transaction:
    transaction = new_transaction(producer_id, 60_000, 0)._replace(producer_epoch=producer_epoch)
    ongoing = transaction.with_partitions(partitions_of(*partitions), version, 0)
    return ongoing.prepared(is_commit=commit, client_transaction_version=version, next_producer_id=NO_PRODUCER_ID, now_ms=0)
