"""The types of the records of `__transaction_state`: there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.coordination.records import RecordTable, RecordType
from broker.transactions.transaction import TAGS_VERSION
from protocol.messages.stored.transaction_records import TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from broker.transactions.shard import TransactionCoordinatorShard


def make_transaction_records(transaction_version: Callable[[], int]) -> RecordTable[TransactionCoordinatorShard]:
    """The table for a coordinator. Values have version 1, with tagged fields, from the finalized transaction version 1 on, else 0."""
    return RecordTable(
        [
            RecordType(
                key_class=TransactionLogKey,
                value_class=TransactionLogValue,
                value_version=lambda value: int(transaction_version() >= TAGS_VERSION),
                owner=lambda shard: shard.replay,
            )
        ]
    )
