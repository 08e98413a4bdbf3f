"""WaitingAdditions: requests to add partitions that wait in a shard for the end of the transaction before.

Bounded in time by each request's own timeout, and in number. Owned by a TransactionCoordinatorShard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.loop.clock import Clock, Timer
from broker.transactions.add_partitions import AddPartitions
from protocol.errors import ErrorCode

WAITING_MAX = 10_000
"""In one shard. One more is answered as in Kafka, with CONCURRENT_TRANSACTIONS."""

Answer = Callable[[ErrorCode], None]


class WaitingAddition(NamedTuple):
    request: AddPartitions
    answer: Answer
    timer: Timer


class WaitingAdditions:
    """See the module's docstring."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._waiting: dict[str, deque[WaitingAddition]] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, transactional_id: str, request: AddPartitions, timeout_ms: float, answer: Answer) -> None:
        """Wait until `take` of this id, or for `timeout_ms`, which is answered with CONCURRENT_TRANSACTIONS."""
        if self._count >= WAITING_MAX or timeout_ms <= 0:
            answer(ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        timer = self._clock.call_later(timeout_ms, partial(self._expire, transactional_id, answer))
        self._waiting.setdefault(transactional_id, deque()).append(WaitingAddition(request, answer, timer))
        self._count += 1

    def take(self, transactional_id: str) -> deque[WaitingAddition]:
        """Those that waited for this id, in their order. They wait no more."""
        taken = self._waiting.pop(transactional_id, deque())
        self._count -= len(taken)
        for each in taken:
            each.timer.cancel()
        return taken

    def refuse_all(self, error: ErrorCode) -> None:
        """Answer all with the error."""
        for transactional_id in list(self._waiting):
            for each in self.take(transactional_id):
                each.answer(error)

    def _expire(self, transactional_id: str, answer: Answer) -> None:
        waiting = self._waiting[transactional_id]
        waiting.remove(next(each for each in waiting if each.answer is answer))
        self._count -= 1
        if not waiting:
            del self._waiting[transactional_id]
        answer(ErrorCode.CONCURRENT_TRANSACTIONS)
