"""AddPartitionsToTxn and AddOffsetsToTxn: what they change, and what a broker that verifies is told. Pure, as init_producer_id.py.

Kafka answers CONCURRENT_TRANSACTIONS while a transaction's markers are being written, and its clients and brokers try again every 20 ms: a
producer with short transactions waits most of its time. Here the request waits for the end of that transaction.

Also, Kafka answers so while any write of the id is in flight. Here partitions are added to what is written and not yet committed: the
answer waits for the commit of its own record, which comes after all before it in the log.

Source: TransactionCoordinator.handleAddPartitionsToTransaction and handleVerifyPartitionsInTransaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from broker.transactions.answers import Need
from broker.transactions.state import EMPTY, ONGOING, PREPARED
from broker.transactions.transaction import ProducerIdAndEpoch, Transaction
from protocol.errors import ErrorCode


class AddPartitions(NamedTuple):
    """A request of a client, or of a broker on its behalf. `transaction_version` is the one whose rules it asks for."""

    producer: ProducerIdAndEpoch
    partitions: Mapping[str, Collection[int]]
    transaction_version: int


def decide(transaction: Transaction | None, request: AddPartitions, *, is_pending: bool, now_ms: int) -> Transaction | ErrorCode | Need:
    """The change to write, the answer if nothing is to be written, or what is lacking. `transaction` is as written, None for an unknown id;
    `is_pending` says that it is not committed. NONE: all partitions are part of the transaction, as soon as that is committed."""
    if transaction is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if is_pending and transaction.state is EMPTY:
        return ErrorCode.CONCURRENT_TRANSACTIONS  # no client knows yet what it has to send
    is_prepared = transaction.state in PREPARED
    found = transaction.completed(now_ms) if is_prepared else transaction
    if found.producer_id != request.producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if found.producer_epoch != request.producer.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if is_prepared:
        return Need.END_OF_TRANSACTION
    if transaction.state is ONGOING and transaction.has_all(request.partitions):
        return ErrorCode.NONE
    return transaction.with_partitions(request.partitions, request.transaction_version, now_ms)


def verify(
    transaction: Transaction | None, producer: ProducerIdAndEpoch, partitions: Mapping[str, Collection[int]]
) -> ErrorCode | dict[str, dict[int, ErrorCode]]:
    """For each partition whether it is part of the transaction, or one error for all.

    `transaction` is committed. A write in flight does not matter: the leader of the partition decides again at the append."""
    if transaction is None or transaction.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != producer.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return {
        topic: {
            partition: ErrorCode.NONE if transaction.has(topic, partition) else ErrorCode.TRANSACTION_ABORTABLE for partition in indexes
        }
        for topic, indexes in partitions.items()
    }
