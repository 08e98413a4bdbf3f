"""LoopJob runs a long job of the broker's own in slices, so that clients are served meanwhile. Slice does the same within a coroutine.

Requests of clients go through broker/loop/turns.py, which is fair among connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

from broker.loop.clock import Clock, Timer
from broker.loop.turns import SLICE_US


class LoopJob:
    """Runs the generator that `begin` makes. From `resume` on, each turn of the loop runs it for SLICE_US, until it has ended.

    The generator yields after each step. A step takes well under a millisecond, and after a yield everything may have changed. The owner
    calls `stop` in the end. An exception of the generator ends it and is raised to the loop; `resume` makes a new one."""

    __slots__ = ("_begin", "_clock", "_is_asked", "_is_in_slice", "_steps", "_timer")

    def __init__(self, clock: Clock, begin: Callable[[], Generator[None, None, None]]) -> None:
        self._clock = clock
        self._begin = begin
        self._steps: Generator[None, None, None] | None = None
        self._timer: Timer | None = None
        self._is_asked = False  # whether `resume` was called since the generator began
        self._is_in_slice = False

    @property
    def is_waiting(self) -> bool:
        """Whether a slice is scheduled for a later turn."""
        return self._timer is not None

    def resume(self) -> None:
        """There is work to do. A generator that is running continues, and another one begins when it has ended."""
        self._is_asked = True
        if not self._is_in_slice:
            self._schedule()

    def run_now(self) -> None:
        """As `resume`, but the first slice runs before this returns, unless a slice is running or scheduled already. For work that is
        nearly always small, which need not wait for a turn of the loop."""
        self._is_asked = True
        if not self._is_in_slice and self._timer is None:
            self._run_slice()

    def stop(self) -> None:
        """Close the generator where it stands. No slice runs until the next `resume`."""
        self._is_asked = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        steps, self._steps = self._steps, None
        if steps is not None and not self._is_in_slice:
            steps.close()

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = self._clock.call_later(0, self._run_slice)

    def _run_slice(self) -> None:
        self._timer = None
        if self._steps is None:
            self._is_asked = False
            self._steps = self._begin()
        steps = self._steps
        end_us = self._clock.monotonic_us() + SLICE_US
        self._is_in_slice = True
        try:
            for _ in steps:
                if self._steps is not steps:  # the step called `stop`
                    steps.close()
                    break
                if self._clock.monotonic_us() >= end_us:
                    break
            else:
                self._steps = None
        except BaseException:
            self._steps = None
            raise
        finally:
            self._is_in_slice = False
            if self._steps is not None or self._is_asked:
                self._schedule()


class Slice:
    """For a coroutine with a long job. It awaits `maybe_end` after each step; a step takes well under a millisecond.

    After `maybe_end` everything may have changed."""

    __slots__ = ("_clock", "_end_us")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end_us = clock.monotonic_us() + SLICE_US

    async def maybe_end(self) -> None:
        """If the slice's SLICE_US are over, wait for the next turn of the loop, and begin a new slice."""
        if self._clock.monotonic_us() >= self._end_us:
            await asyncio.sleep(0)
            self._end_us = self._clock.monotonic_us() + SLICE_US
