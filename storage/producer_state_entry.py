"""What a partition knows of one producer: its epoch, its last batches, its open transaction (Kafka's ProducerStateEntry).

Owned by a ProducerStateManager, which alone changes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from protocol.records import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, SEQUENCE_MAX
from storage.producer_snapshot import SnapshotEntry

BATCHES_TO_RETAIN = 5
"""Batches remembered per producer: what a client may have in flight (max.in.flight.requests.per.connection)."""

NO_COORDINATOR_EPOCH = -1


class BatchMetadata(NamedTuple):
    """An appended batch, as needed to recognise and answer a retry of it. `timestamp` is the batch's largest."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerStateEntry:
    """One producer's state. `batches` are at most five, oldest first, all of `producer_epoch`."""

    __slots__ = ("batches", "coordinator_epoch", "current_transaction_first_offset", "last_timestamp", "producer_epoch", "producer_id")

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = NO_TIMESTAMP,
        current_transaction_first_offset: int | None = None,
        batches: Iterable[BatchMetadata] = (),
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_transaction_first_offset = current_transaction_first_offset
        self.batches = list(batches)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerStateEntry) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def has_open_transaction(self, producer_epoch: int) -> bool:
        """Whether a transaction of that epoch is open. In another epoch it may have ended."""
        return self.current_transaction_first_offset is not None and self.producer_epoch == producer_epoch

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class CompletedTransaction(NamedTuple):
    """A transaction that a marker at `last_offset` has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


def snapshot_of(entry: ProducerStateEntry) -> SnapshotEntry:
    first_offset = entry.current_transaction_first_offset
    last = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, NO_SEQUENCE, -1, -1, NO_TIMESTAMP)
    return SnapshotEntry(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=last.last_sequence,
        last_offset=last.last_offset,
        offset_delta=last.last_offset - last.first_offset,
        timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_transaction_first_offset=-1 if first_offset is None else first_offset,
    )


def entry_of(loaded: SnapshotEntry) -> ProducerStateEntry:
    batches: list[BatchMetadata] = []
    if loaded.last_offset >= 0:
        first_sequence = NO_SEQUENCE
        if loaded.last_sequence >= 0:
            first_sequence = (loaded.last_sequence - loaded.offset_delta) & SEQUENCE_MAX
        first_offset = loaded.last_offset - loaded.offset_delta
        batches.append(BatchMetadata(first_sequence, loaded.last_sequence, first_offset, loaded.last_offset, loaded.timestamp))
    first_open = loaded.current_transaction_first_offset
    return ProducerStateEntry(
        producer_id=loaded.producer_id,
        producer_epoch=loaded.producer_epoch,
        coordinator_epoch=loaded.coordinator_epoch,
        last_timestamp=loaded.timestamp,
        current_transaction_first_offset=first_open if first_open >= 0 else None,
        batches=batches,
    )
