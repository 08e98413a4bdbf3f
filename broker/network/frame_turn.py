"""How long pipelined requests may hold the loop, all connections together.

Every connection handles the first frame of what it has received in its turn of the loop; more of them only while TURN_US last. What
is left waits, undecoded, for the next turn: 8 KB at most for each connection. Without this bound, a hundred connections that each
receive 300 tiny requests at once hold the loop for 0.8 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TURN_US = 3_000
"""Microseconds: 300 of the smallest produce requests, seven reads of a connection that pipelines them."""


class FrameTurn:
    """One for all connections of a loop. `call_soon` is the loop's. A turn begins when anyone first asks."""

    __slots__ = ("_call_soon", "_end_us", "_monotonic_us")

    def __init__(self, call_soon: Callable[..., Any], monotonic_us: Callable[[], int]) -> None:
        self._call_soon = call_soon
        self._monotonic_us = monotonic_us
        self._end_us: int | None = None

    def has_time_left(self) -> bool:
        """Whether a connection that has handled a frame in this turn may handle another."""
        if self._end_us is None:
            self._end_us = self._monotonic_us() + TURN_US
            self._call_soon(self._end)
            return True
        return self._monotonic_us() < self._end_us

    def _end(self) -> None:
        self._end_us = None
