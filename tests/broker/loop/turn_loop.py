"""A loop that runs what was scheduled one turn at a call, with Turns whose slices are a few pieces long."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from broker.loop.turns import SLICE_US, Turns

PIECES_PER_SLICE = 4


class TurnLoop:
    """Its clock goes on by `us_per_look` with every look at it, so that a slice ends after PIECES_PER_SLICE pieces."""

    def __init__(self, us_per_look: int = SLICE_US // PIECES_PER_SLICE) -> None:
        self._us_per_look = us_per_look
        self.scheduled: deque[Callable[[], Any]] = deque()
        self._now_us = 0
        self.turns = Turns(self.call_soon, self.monotonic_us)

    def call_soon(self, callback: Callable[..., Any], *arguments: Any) -> None:
        self.scheduled.append(lambda: callback(*arguments))

    def monotonic_us(self) -> int:
        self._now_us += self._us_per_look
        return self._now_us

    def turn(self) -> None:
        for _ in range(len(self.scheduled)):
            self.scheduled.popleft()()

    def run(self) -> int:
        """Turns until nothing is scheduled; how many."""
        turns_count = 0
        while self.scheduled:
            self.turn()
            turns_count += 1
        return turns_count
