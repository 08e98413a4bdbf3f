"""The broker-wide budget for request bytes that are held: large frames in arrival and frames that wait for their turn.

Past `queued.max.request.bytes` connections that hold such bytes stop reading until others are done; memory, not clients, is what
runs out first. One holder always goes on, however large its frame, or nobody would ever finish. Source: Kafka's SimpleMemoryPool.
"""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """A connection, as far as this is concerned."""

    def memory_available(self) -> None:
        """Read on; called once after `RequestMemory.hold` said no."""


class RequestMemory:
    """Counts what each holder holds, in bytes. Owned by the connection registry; connections report to it."""

    __slots__ = ("_held", "_paused", "held_size", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held_size = 0
        self._held: dict[Holder, int] = {}
        self._paused: dict[Holder, None] = {}  # ordered: who waits longest goes on first

    def hold(self, holder: Holder, size: int) -> bool:
        """`holder` holds `size` bytes from now on, 0 for none. False: it must not read until `memory_available`."""
        before = self._held.pop(holder, 0)
        if size:
            self._held[holder] = size
        self.held_size += size - before
        if size < before:
            self._paused.pop(holder, None)
            self._let_go_on()
            return True
        if not size or self.held_size <= self.limit or len(self._held) == len(self._paused) + 1:
            return True
        self._paused[holder] = None
        return False

    def _let_go_on(self) -> None:
        while self._paused and (self.held_size <= self.limit or len(self._paused) == len(self._held)):
            holder = next(iter(self._paused))
            del self._paused[holder]
            holder.memory_available()
