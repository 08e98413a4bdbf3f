"""What clients are shown of transactional ids, as far as it is committed (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from broker.transactions.state import STATES_BY_LABEL, UNUSED_LABELS, TransactionState
from broker.transactions.transaction import Partitions, Transaction

if TYPE_CHECKING:
    from broker.transactions.transaction_table import TransactionTable


class TransactionDescription(NamedTuple):
    """A transactional id. `partitions` are those whose marker is not written yet. `start_ms` is -1 if no transaction began."""

    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: Partitions


class TransactionListing(NamedTuple):
    """A transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionFilter(NamedTuple):
    """Which ids are listed: those of one of the states, one of the producer ids, with a transaction that began more than `duration_ms` ago,
    whose id matches. An empty collection, a negative duration and None let all through.

    As in Kafka, an id without a transaction has lasted since before the epoch."""

    states: Collection[TransactionState] | None = None
    producer_ids: Collection[int] = ()
    duration_ms: int = -1
    matches: Callable[[str], bool] | None = None

    def lets_through(self, transactional_id: str, transaction: Transaction, now_ms: int) -> bool:
        return (
            (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (self.states is None or transaction.state in self.states)
            and (self.duration_ms < 0 or now_ms - transaction.start_ms > self.duration_ms)
            and (self.matches is None or self.matches(transactional_id))
        )


def states_of(labels: Collection[str]) -> tuple[Collection[TransactionState] | None, list[str]]:
    """The states of a filter by their names, None for no filter, and the names that are no state. Upper and lower case count."""
    if not labels:
        return None, []
    unknown = [label for label in dict.fromkeys(labels) if label not in STATES_BY_LABEL and label not in UNUSED_LABELS]
    return frozenset(STATES_BY_LABEL[label] for label in labels if label in STATES_BY_LABEL), unknown


def listings(table: TransactionTable, wanted: TransactionFilter, now_ms: int) -> Iterator[TransactionListing | None]:
    """One by one what is let through, and None for each id that is not. Between two of them the ids may change: one that is created then
    may be left out."""
    for transactional_id in (*table.open_ids(), *table.resting_ids()):
        transaction = table.find_committed(transactional_id)
        if transaction is not None and wanted.lets_through(transactional_id, transaction, now_ms):
            yield TransactionListing(transactional_id, transaction.producer_id, transaction.state.label)
        else:
            yield None


def described(transaction: Transaction, unmarked: Partitions | None) -> TransactionDescription:
    """`unmarked` are the partitions whose marker is not written yet, None if that is not known."""
    return TransactionDescription(
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.state.label,
        transaction.timeout_ms,
        transaction.start_ms,
        transaction.partitions if unmarked is None else unmarked,
    )
