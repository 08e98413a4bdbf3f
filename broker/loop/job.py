"""A long job of the broker's own, in slices of the loop's time, so that clients are served meanwhile: LoopJob, and Slice for a coroutine.

What clients ask for goes through broker/loop/turns.py, where it is fair among them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

from broker.loop.clock import Clock, Timer
from broker.loop.turns import SLICE_US


class LoopJob:
    """From `resume` on, each turn of the loop runs a slice of SLICE_US of the generator that `begin` makes, until it has ended.

    The generator yields after each step, which takes well under a millisecond; after a yield everything may have changed. The owner calls
    `stop` in the end. An exception of the generator ends it and is raised to the loop; `resume` makes a new one."""

    __slots__ = ("_begin", "_clock", "_is_asked", "_is_in_slice", "_steps", "_timer")

    def __init__(self, clock: Clock, begin: Callable[[], Generator[None, None, None]]) -> None:
        self._clock = clock
        self._begin = begin
        self._steps: Generator[None, None, None] | None = None
        self._timer: Timer | None = None
        self._is_asked = False  # again, since the generator began
        self._is_in_slice = False

    @property
    def is_waiting(self) -> bool:
        """Whether a slice comes in a later turn."""
        return self._timer is not None

    def resume(self) -> None:
        """There is something to do: a generator that is running goes on, and another begins when it has ended."""
        self._is_asked = True
        if not self._is_in_slice:
            self._schedule()

    def run_now(self) -> None:
        """As `resume`, but the first slice runs before this returns, unless others come first: one that waits for its turn, or one that
        is running. For what is nearly always little, and would else wait for a turn of the loop."""
        self._is_asked = True
        if not self._is_in_slice and self._timer is None:
            self._run_slice()

    def stop(self) -> None:
        """Close the generator where it stands. No slice comes any more until `resume`."""
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
                if self._steps is not steps:  # stopped by what it did
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
    """For a coroutine that works long on the loop: it awaits `maybe_end` after each step, which takes well under a millisecond.

    After `maybe_end` everything may have changed."""

    __slots__ = ("_clock", "_end_us")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end_us = clock.monotonic_us() + SLICE_US

    async def maybe_end(self) -> None:
        """If SLICE_US are over, let others have a turn of the loop, and begin the next slice."""
        if self._clock.monotonic_us() >= self._end_us:
            await asyncio.sleep(0)
            self._end_us = self._clock.monotonic_us() + SLICE_US
