"""Bounds the time for which the pipelined requests of all connections may hold the loop.

Each read of a connection handles its first frame, and further frames as long as the turn has used less than TURN_US. The other frames wait,
undecoded: at most 8 KB for each connection. Waiting connections continue in order, as many in a turn of the loop as TURN_US allows. Without
this bound, a hundred connections that each receive 300 tiny requests at once hold the loop for 0.8 s; if each handled one frame in every
turn, for 13 ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

TURN_US = 3_000
"""Microseconds: 300 of the smallest produce requests, seven reads of a connection that pipelines them."""


class FrameTurn:
    """One for all connections of a loop. `call_soon` is the loop's. A turn begins at its first call."""

    __slots__ = ("_call_soon", "_end_ns", "_is_scheduled", "_monotonic_ns", "_waiting")

    def __init__(self, call_soon: Callable[..., Any], monotonic_ns: Callable[[], int]) -> None:
        self._call_soon = call_soon
        self._monotonic_ns = monotonic_ns
        self._end_ns: int | None = None
        self._waiting: deque[Callable[[], object]] = deque()  # longest first
        self._is_scheduled = False

    def has_time_left(self) -> bool:
        """Whether a connection that has handled a frame in this turn may handle another."""
        if self._end_ns is None:
            self._end_ns = self._monotonic_ns() + TURN_US * 1_000
            self._call_soon(self._end)
            return True
        return self._monotonic_ns() < self._end_ns

    def wait(self, go_on: Callable[[], object]) -> None:
        """Call `go_on` in a later turn, behind those that wait already."""
        self._waiting.append(go_on)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._serve)

    def _serve(self) -> None:
        """Let waiting connections continue until the turn is over: at least one, so that others cannot make them wait for ever."""
        self._is_scheduled = False
        waiting = self._waiting
        self.has_time_left()  # begins the turn, if this is its first call
        try:
            while waiting:
                waiting.popleft()()
                if not self.has_time_left():
                    break
        finally:
            if waiting:
                self._schedule()

    def _end(self) -> None:
        self._end_ns = None
