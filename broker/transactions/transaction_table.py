"""TransactionTable: the transactional ids of one shard, as written and as committed.

Owned by a TransactionCoordinatorShard. Only replay changes it, through the shard's timeline. An id is either open, with a Transaction, or
at rest, with 42 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.transactions.state import RESTING, TransactionState
from broker.transactions.transaction import Transaction, last_update_of, state_of, unpack

if TYPE_CHECKING:
    from broker.coordination.timeline import Timeline


class TransactionTable:
    """See the module's docstring."""

    __slots__ = ("_counts", "_open", "_resting", "_timeline")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._open: dict[str, Transaction] = {}
        self._resting: dict[str, bytes] = {}
        self._counts = dict.fromkeys(TransactionState, 0)

    def __len__(self) -> int:
        return len(self._open) + len(self._resting)

    @property
    def counts(self) -> dict[TransactionState, int]:
        """How many ids are in each state, as written."""
        return dict(self._counts)

    def find_oldest_start_ms(self) -> int | None:
        """When the oldest transaction that is open began, as written; None if there is none. Looks at all that are open."""
        return min((transaction.start_ms for transaction in self._open.values()), default=None)

    # Reading.

    def find(self, transactional_id: str) -> Transaction | None:
        """As written. Of an open transaction it is the same object until the next change."""
        transaction = self._open.get(transactional_id)
        if transaction is not None:
            return transaction
        packed = self._resting.get(transactional_id)
        return None if packed is None else unpack(packed)

    def find_committed(self, transactional_id: str) -> Transaction | None:
        """As committed."""
        timeline = self._timeline
        transaction = timeline.committed(self._open).get(transactional_id)
        if transaction is not None:
            return transaction
        packed = timeline.committed(self._resting).get(transactional_id)
        return None if packed is None else unpack(packed)

    def is_committed(self, transactional_id: str) -> bool:
        """Whether no write of the id is in flight."""
        timeline = self._timeline
        return timeline.is_committed(self._open, transactional_id) and timeline.is_committed(self._resting, transactional_id)

    def open_ids(self) -> list[str]:
        """Of the transactions that are ongoing or whose markers are being written."""
        return list(self._open)

    def resting_ids(self) -> list[str]:
        """Of the others. A million of them take 50 ms, once."""
        return list(self._resting)

    def is_resting_since(self, transactional_id: str, time_ms: int) -> bool:
        """Whether the id is at rest, committed, and was not updated after `time_ms`."""
        packed = self._resting.get(transactional_id)
        return packed is not None and last_update_of(packed) <= time_ms and self.is_committed(transactional_id)

    # Changing, by replay alone.

    def put(self, transactional_id: str, transaction: Transaction) -> None:
        timeline = self._timeline
        self._uncount(transactional_id)
        if transaction.state in RESTING:
            timeline.remove(self._open, transactional_id)
            timeline.put(self._resting, transactional_id, transaction.pack())
        else:
            timeline.remove(self._resting, transactional_id)
            timeline.put(self._open, transactional_id, transaction)
        self._counts[transaction.state] += 1

    def _uncount(self, transactional_id: str) -> None:
        """The id leaves its present state, if it is known."""
        transaction = self._open.get(transactional_id)
        if transaction is not None:
            self._counts[transaction.state] -= 1
        elif (packed := self._resting.get(transactional_id)) is not None:
            self._counts[state_of(packed)] -= 1

    def remove(self, transactional_id: str) -> None:
        self._uncount(transactional_id)
        self._timeline.remove(self._open, transactional_id)
        self._timeline.remove(self._resting, transactional_id)
