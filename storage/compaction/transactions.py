"""Decides which transactional batches and which transaction markers compaction drops (CleanedTransactionMetadata).

It gets the batches of a log in order. Records of aborted transactions are dropped at once. A marker stays until all batches of its
transaction are gone, and then as long as a tombstone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from protocol.records import BatchHeader, ControlRecordType
from storage.transaction_index import AbortedTransaction


def ignore(_aborted: AbortedTransaction) -> None:
    """For a pass that writes no transaction index."""


class TransactionTracker:
    """See the module's docstring. `aborted` are all aborted transactions that have records, or their marker, in what is read."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._ongoing_committed: set[int] = set()
        self._ongoing_aborted: dict[int, AbortedTransaction] = {}
        self._seen_aborted: set[int] = set()  # producers of whose aborted transaction a batch was still there
        self.keep_aborted: Callable[[AbortedTransaction], None] = ignore
        """Called with each aborted transaction that the index of the segment that is being written must name."""

    def drops_batch(self, header: BatchHeader) -> bool:
        """Called for each batch of records that is part of a transaction: whether that was aborted."""
        self._begin_up_to(header.last_offset)
        if header.producer_id in self._ongoing_aborted:
            self._seen_aborted.add(header.producer_id)
            return True
        self._ongoing_committed.add(header.producer_id)
        return False

    def drops_control_batch(self, header: BatchHeader, control_type: ControlRecordType | None) -> bool:
        """Called for each control batch, with the type None if its record was removed: whether it is not needed any more."""
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if control_type is None:
            return True
        if control_type is ControlRecordType.ABORT:
            aborted = self._ongoing_aborted.pop(producer_id, None)
            is_needed = aborted is not None and producer_id in self._seen_aborted
            self._seen_aborted.discard(producer_id)
            if is_needed and aborted is not None:
                self.keep_aborted(aborted)
            return not is_needed
        if control_type is ControlRecordType.COMMIT:
            is_needed = producer_id in self._ongoing_committed
            self._ongoing_committed.discard(producer_id)
            return not is_needed
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0].first_offset <= offset:
            aborted = self._aborted.popleft()
            self._ongoing_aborted.setdefault(aborted.producer_id, aborted)
