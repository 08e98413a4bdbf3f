"""A job of the broker's own that is done a step in each turn of the loop, so that clients are served meanwhile.

What clients ask for goes through broker/loop/turns.py, where it is fair among them.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.loop.clock import Clock, Timer


class LoopJob:
    """`step()` is called once in each turn of the loop from `resume` on until it returns False, and takes a millisecond or two.

    The owner of `step` calls `stop` in the end."""

    __slots__ = ("_clock", "_step", "_timer")

    def __init__(self, clock: Clock, step: Callable[[], bool]) -> None:
        self._clock = clock
        self._step = step
        self._timer: Timer | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the next step comes in a later turn."""
        return self._timer is not None

    def resume(self) -> None:
        """There is something to do: a step in the next turn, unless one is to come already."""
        if self._timer is None:
            self._timer = self._clock.call_later(0, self._run)

    def stop(self) -> None:
        """No step comes any more until `resume`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        if self._step():
            self.resume()
