"""How long pipelined requests may hold the loop, all connections together.

Every connection handles the first frame of what it has received when it is read; more of them only while TURN_US last. What is left
waits, undecoded: 8 KB at most for each connection. Connections that wait go on in the order in which they began to, as many in a turn of
the loop as TURN_US allow. Without this bound, a hundred connections that each receive 300 tiny requests at once hold the loop for 0.8 s;
if each handled one frame in every turn, for 13 ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

TURN_US = 3_000
"""Microseconds: 300 of the smallest produce requests, seven reads of a connection that pipelines them."""


class FrameTurn:
    """One for all connections of a loop. `call_soon` is the loop's. A turn begins when anyone first asks."""

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
        """Let those that wait go on until the turn is over: one at least, else others could keep them waiting for ever."""
        self._is_scheduled = False
        waiting = self._waiting
        self.has_time_left()  # the turn begins, if nobody has asked yet
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
