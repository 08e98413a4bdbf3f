"""A group coordinator that ends transactions in `__consumer_offsets` when a test says so."""

from __future__ import annotations

from broker.groups.coordinator import GroupCoordinator
from broker.loop.deferred import Deferred
from protocol.errors import ErrorCode
from storage.markers import TransactionMarker
from tests.support.doubles import stands_for


@stands_for(GroupCoordinator, own=("answer", "asked"))
class HeldOffsets:
    """`asked` are the markers with their partitions, in order."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, TransactionMarker]] = []
        self._waiting: list[Deferred] = []

    def complete_transaction(self, partition: int, marker: TransactionMarker) -> Deferred:
        self.asked.append((partition, marker))
        self._waiting.append(Deferred())
        return self._waiting[-1]

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest one that waits."""
        self._waiting.pop(0).complete(error)
