"""Requests that wait: operations parked until an event on one of their keys, or their timeout, completes them.

Kafka's DelayedOperationPurgatory has shards, locks and a reaper thread as well. On one loop nothing runs between a failed `try_complete`
and the registration, so the second try that Kafka needs there against lost wakeups is not needed here, and an operation that completes at
once is never registered and arms no timer.

Code that moves an offset does not see errors of the answers that this completes: an error is logged, and the other answers are sent.

Invariant: an operation is registered on all of its keys and has a timer exactly while it is parked. The purgatory owns both; operations
only say whether they can complete. Keys are Partition objects here, but may be any hashable.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable

from broker.loop.clock import Clock, Timer

log = logging.getLogger("barnabas.replication")


class DelayedOperation(ABC):
    """A request that may have to wait. Completed exactly once, by an event, by its timeout or by `Purgatory.cancel`."""

    __slots__ = ("is_completed", "keys", "timer")

    def __init__(self) -> None:
        self.is_completed = False
        self.keys: tuple[Hashable, ...] = ()
        self.timer: Timer | None = None

    @abstractmethod
    def try_complete(self, key: Hashable | None) -> bool:
        """Whether it can complete now. `key` is the one whose state changed, None when all have to be looked at.

        It may keep partial results, but must not complete the operation: the purgatory does that when this returns True."""

    @abstractmethod
    def on_complete(self) -> None:
        """Send the answer. The operation has left the purgatory already, so nothing that this wakes can complete it again."""

    def on_expire(self) -> None:  # noqa: B027 - most do nothing here
        """Called at the timeout, just before `on_complete`."""


class Purgatory:
    """The parked operations of one kind. There is at most one for each request in flight, which bounds the number."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.watchers: dict[Hashable, dict[DelayedOperation, None]] = {}  # by key; keys without a waiting operation are absent
        self.size = 0
        self.expired_count = 0

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: float) -> bool:
        """Complete `operation` now and return True, or park it on `keys` for at most `timeout_ms` and return False."""
        if operation.try_complete(None):
            operation.is_completed = True
            operation.on_complete()
            return True
        self.watch(operation, keys, timeout_ms)
        return False

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: float) -> None:
        """Park `operation` as above; the caller knows that it cannot complete now."""
        operation.keys = tuple(keys)
        watchers = self.watchers
        for key in operation.keys:
            watched = watchers.get(key)
            if watched is None:
                watchers[key] = {operation: None}
            else:
                watched[operation] = None
        self.size += 1
        operation.timer = self._clock.call_later(timeout_ms, self._expire, operation)

    def notify(self, key: Hashable) -> int:
        """Try every operation parked on `key`, oldest first. Returns how many completed."""
        watched = self.watchers.get(key)
        if watched is None:
            return 0
        completed_count = 0
        for operation in tuple(watched):  # a completion may park or complete others on the same key
            if not operation.is_completed and operation.try_complete(key):
                self.complete(operation)
                completed_count += 1
        return completed_count

    def complete(self, operation: DelayedOperation) -> None:
        """Complete `operation`, which is parked: its owner knows that it can complete, without an event on a key."""
        self._remove(operation)
        try:
            operation.on_complete()
        except Exception:
            log.exception("an answer that waited failed operation=%s", type(operation).__name__)

    def cancel(self, operation: DelayedOperation) -> None:
        """Drop `operation` without an answer because its request was abandoned. Does nothing if it is complete."""
        if not operation.is_completed:
            self._remove(operation)

    def _expire(self, operation: DelayedOperation) -> None:
        if operation.is_completed:
            return
        self.expired_count += 1
        operation.on_expire()
        self.complete(operation)

    def _remove(self, operation: DelayedOperation) -> None:
        operation.is_completed = True
        if operation.timer is None:
            return  # it was never parked
        operation.timer.cancel()
        operation.timer = None
        self.size -= 1
        watchers = self.watchers
        for key in operation.keys:
            watched = watchers[key]
            del watched[operation]
            if not watched:
                del watchers[key]
