"""A transaction coordinator that answers when a test says so, and additions that ask it nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from broker.loop.deferred import Deferred
from broker.transactions.add_partitions import AddPartitions
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.partition_additions import PartitionAdditions, Question
from broker.transactions.transaction import ProducerIdAndEpoch
from protocol.errors import ErrorCode
from tests.support.doubles import stands_for


@stands_for(TransactionCoordinator, own=("answer",))
class HeldCoordinator:
    """`added` has the requests to add in their order. `refusal` is raised, if set; what is verified gets `verdict`."""

    def __init__(self) -> None:
        self.added: list[tuple[str, AddPartitions, float]] = []
        self.verified: list[tuple[str, ProducerIdAndEpoch, Any]] = []
        self.verdict: ErrorCode | dict[str, dict[int, ErrorCode]] = ErrorCode.NONE
        self.refusal: Exception | None = None
        self._waiting: list[Deferred] = []

    def add_partitions(self, transactional_id: str, request: AddPartitions, timeout_ms: float) -> Deferred:
        if self.refusal is not None:
            raise self.refusal
        self.added.append((transactional_id, request, timeout_ms))
        self._waiting.append(Deferred())
        return self._waiting[-1]

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Mapping[str, Collection[int]]
    ) -> ErrorCode | dict[str, dict[int, ErrorCode]]:
        self.verified.append((transactional_id, producer, partitions))
        return self.verdict

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Complete the oldest addition that waits."""
        self._waiting.pop(0).complete(error)


@stands_for(PartitionAdditions, own=("answer", "is_verification_enabled"))
class HeldAdditions:
    """`asked` has the questions in their order."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.is_enabled = True
        self._waiting: list[Deferred] = []

    def is_verification_enabled(self) -> bool:
        return self.is_enabled

    def ask(self, question: Question) -> Deferred:
        self.asked.append(question)
        self._waiting.append(Deferred())
        return self._waiting[-1]

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Complete the oldest question, with this error for its only partition."""
        ((topic, (index,)),) = self.asked[-len(self._waiting)].partitions.items()
        self._waiting.pop(0).complete({} if error is ErrorCode.NONE else {(topic, index): error})
