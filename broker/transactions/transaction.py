"""Transaction: the durable state of one transactional id, immutable, and the changes of it (Kafka's TransactionMetadata).

A change is a new Transaction. Operations compute it, its record is appended, and replay puts it in place of the one before.

An id at rest, without a transaction, is kept as 42 bytes: a coordinator has many ids (a Flink job makes one for each checkpoint and
subtask, and they live seven days) and few open transactions.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from broker.transactions.state import (
    ALLOWED_BEFORE,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    RESTING,
    TransactionState,
)
from protocol.messages.stored.transaction_records import PartitionsSchema, TransactionLogValue

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1

LAST_EPOCH = 2**15 - 1
"""Never given to a client, so that there always is an epoch left that fences it."""
LAST_CLIENT_EPOCH = LAST_EPOCH - 1

NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a transaction that takes part in a two-phase commit (KIP-939), which no sweep ends."""

EPOCH_BUMP_VERSION = 2
"""From this transaction version on each transaction has an epoch of its own (KIP-890)."""

TAGS_VERSION = 1
"""From this transaction version on records have tagged fields: without them no producer id can be replaced at the end of a transaction."""

Partitions = Mapping[str, frozenset[int]]
"""The partitions of a transaction by topic. Never changed in place."""

NO_PARTITIONS: Partitions = {}

_RESTING = struct.Struct("<qqqqihhbb")
_LAST_UPDATE = struct.Struct("<q")
_LAST_UPDATE_POSITION = 3 * 8
_STATE_POSITION = _RESTING.size - 2


class ProducerIdAndEpoch(NamedTuple):
    """What a producer sends with each request."""

    producer_id: int
    producer_epoch: int


class Transaction(NamedTuple):
    """See the module's docstring. Times are milliseconds since the Unix epoch.

    `previous_producer_id` is the producer id before the last change. `next_producer_id` takes the place of `producer_id` when the
    transaction is complete, if the epochs are exhausted. `last_producer_epoch` is the epoch before the last change of it, if the producer
    itself asked for that change: it is not durable, so a retry of InitProducerId that spans two coordinators is fenced, as in Kafka.
    `client_transaction_version` says by which rules the transaction ends."""

    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: Partitions
    start_ms: int
    last_update_ms: int
    client_transaction_version: int

    @property
    def is_commit(self) -> bool:
        """Whether the decided outcome is a commit."""
        return self.state in (PREPARE_COMMIT, COMPLETE_COMMIT)

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether no client can get an epoch above this one."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether it is open for longer than its timeout. It also is if it begins later than a timeout from now: the clock was set back, or
        that of the coordinator before was ahead. Otherwise nothing would end it, and its readers would wait, until the clock gets there."""
        return self.state is ONGOING and self.timeout_ms != NO_TIMEOUT_MS and abs(now_ms - self.start_ms) > self.timeout_ms

    def has(self, topic: str, partition: int) -> bool:
        """Whether the partition is part of the transaction."""
        return partition in self.partitions.get(topic, ())

    def has_all(self, partitions: Mapping[str, Collection[int]]) -> bool:
        return all(self.partitions.get(topic, frozenset()).issuperset(added) for topic, added in partitions.items())

    # Changes.

    def _check_change(self, state: TransactionState) -> None:
        assert self.state in ALLOWED_BEFORE[state], f"{self.state.label} does not become {state.label}"

    def with_producer(self, producer: ProducerIdAndEpoch, last_producer_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """Empty, for a producer that was initialized."""
        self._check_change(EMPTY)
        return Transaction(
            producer.producer_id,
            self.producer_id,
            self.next_producer_id,
            producer.producer_epoch,
            last_producer_epoch,
            timeout_ms,
            EMPTY,
            NO_PARTITIONS,
            NO_TIMESTAMP,
            now_ms,
            self.client_transaction_version,
        )

    def with_partitions(self, added: Mapping[str, Collection[int]], client_transaction_version: int, now_ms: int) -> Transaction:
        """Ongoing, with more partitions. The transaction begins with its first ones."""
        partitions = dict(self.partitions)
        for topic, indexes in added.items():
            partitions[sys.intern(topic)] = partitions.get(topic, frozenset()) | frozenset(indexes)
        self._check_change(ONGOING)
        return Transaction(
            self.producer_id,
            self.producer_id,
            self.next_producer_id,
            self.producer_epoch,
            self.last_producer_epoch,
            self.timeout_ms,
            ONGOING,
            partitions,
            now_ms if self.state in RESTING else self.start_ms,
            now_ms,
            client_transaction_version,
        )

    def prepared(self, *, is_commit: bool, client_transaction_version: int, next_producer_id: int, now_ms: int) -> Transaction:
        """Its outcome is decided. From transaction version 2 on the epoch is bumped here, so that no late batch of the producer's counts
        for its next transaction. An abort without partitions begins now."""
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if client_transaction_version >= EPOCH_BUMP_VERSION:
            # Versions of Kafka with a bug leave LAST_EPOCH behind: the transaction ends without another epoch, then the id is replaced.
            epoch, last_epoch = min(epoch + 1, LAST_EPOCH), epoch
        state = PREPARE_COMMIT if is_commit else PREPARE_ABORT
        self._check_change(state)
        return Transaction(
            self.producer_id,
            self.producer_id,
            next_producer_id,
            epoch,
            last_epoch,
            self.timeout_ms,
            state,
            self.partitions,
            now_ms if self.state in RESTING else self.start_ms,
            now_ms,
            client_transaction_version,
        )

    def fenced(self) -> Transaction:
        """The same with an epoch that no client has, for an abort of the coordinator's own below transaction version 2."""
        return self._replace(producer_epoch=min(self.producer_epoch + 1, LAST_EPOCH), last_producer_epoch=NO_PRODUCER_EPOCH)

    def completed(self, now_ms: int) -> Transaction:
        """All its markers are written."""
        is_replaced = self.client_transaction_version >= EPOCH_BUMP_VERSION and self.next_producer_id != NO_PRODUCER_ID
        state = COMPLETE_COMMIT if self.is_commit else COMPLETE_ABORT
        self._check_change(state)
        return Transaction(
            self.next_producer_id if is_replaced else self.producer_id,
            self.producer_id,
            NO_PRODUCER_ID,
            0 if is_replaced else self.producer_epoch,
            self.last_producer_epoch,
            self.timeout_ms,
            state,
            NO_PARTITIONS,
            self.start_ms,
            now_ms,
            self.client_transaction_version,
        )

    # At rest.

    def pack(self) -> bytes:
        """The same as bytes, for a resting state, which has neither partitions nor a next producer id."""
        return _RESTING.pack(
            self.producer_id,
            self.previous_producer_id,
            self.start_ms,
            self.last_update_ms,
            self.timeout_ms,
            self.producer_epoch,
            self.last_producer_epoch,
            self.state.value,
            self.client_transaction_version,
        )


def new_transaction(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """The state of an id that is not known yet, before its first change: without an epoch. It is never stored."""
    return Transaction(
        producer_id=producer_id,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=timeout_ms,
        state=EMPTY,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIMESTAMP,
        last_update_ms=now_ms,
        client_transaction_version=0,
    )


def from_value(value: TransactionLogValue) -> Transaction:
    """What a record says. ValueError for a state that no record has."""
    state = TransactionState(value.transaction_status)
    return Transaction(
        value.producer_id,
        value.previous_producer_id,
        value.next_producer_id,
        value.producer_epoch,
        NO_PRODUCER_EPOCH,
        value.transaction_timeout_ms,
        state,
        NO_PARTITIONS if state in RESTING else _loaded(value.transaction_partitions or ()),
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        value.client_transaction_version,
    )


def unpack(packed: bytes) -> Transaction:
    """What `pack` has packed."""
    producer_id, previous_producer_id, start_ms, last_update_ms, timeout_ms, epoch, last_epoch, state, version = _RESTING.unpack(packed)
    return Transaction(
        producer_id,
        previous_producer_id,
        NO_PRODUCER_ID,
        epoch,
        last_epoch,
        timeout_ms,
        TransactionState(state),
        NO_PARTITIONS,
        start_ms,
        last_update_ms,
        version,
    )


def last_update_of(packed: bytes) -> int:
    """`last_update_ms` of what is packed, without the rest."""
    last_update_ms: int = _LAST_UPDATE.unpack_from(packed, _LAST_UPDATE_POSITION)[0]
    return last_update_ms


def state_of(packed: bytes) -> TransactionState:
    """`state` of what is packed, without the rest."""
    return TransactionState(packed[_STATE_POSITION])


def _loaded(stored: Iterable[PartitionsSchema]) -> Partitions:
    return {sys.intern(each.topic): frozenset(each.partition_ids) for each in stored}
