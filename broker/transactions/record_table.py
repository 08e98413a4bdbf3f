"""The types of the records of `__transaction_state`: there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.coordination.records import RecordTable, RecordType
from broker.transactions.stored_transaction import decode_value, encode_key, encode_value, record_version
from broker.transactions.transaction import Transaction
from protocol.messages.stored.transaction_records import TransactionLogKey

if TYPE_CHECKING:
    from broker.transactions.shard import TransactionCoordinatorShard


class _TransactionRecord(RecordType["TransactionCoordinatorShard"]):
    """Its value is a Transaction, without a message between."""

    __slots__ = ()

    def encode_value(self, value: Transaction) -> bytes:
        return encode_value(value, self.value_version(value))

    def decode_value(self, value: bytes) -> Transaction:
        return decode_value(value)


def make_transaction_records(transaction_version: Callable[[], int]) -> RecordTable[TransactionCoordinatorShard]:
    """The table for a coordinator, at its finalized transaction version."""
    return RecordTable(
        [
            _TransactionRecord(
                key_class=TransactionLogKey,
                value_class=Transaction,
                value_version=lambda transaction: record_version(transaction, transaction_version()),
                owner=lambda shard: shard.replay,
                encode_key=encode_key,
            )
        ]
    )
