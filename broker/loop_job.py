"""A job of the broker's own that is done a step in each turn of the loop, so that clients are served meanwhile.

What clients ask for goes through broker/turns.py, where it is fair among them.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.clock import Clock, Timer

OnBusy = Callable[[object, bool], object]
"""Called with work in pieces when it begins to have turns of its own (True), and when it ended (False). Repeating a call is harmless."""


def ignore_busy(_work: object, _is_busy: bool) -> None:
    """The OnBusy that does nothing."""


class LoopJob:
    """`step()` is called once in each turn of the loop from `resume` on until it returns False, and takes a millisecond or two.

    The owner of `step` calls `stop` in the end."""

    __slots__ = ("_clock", "_on_busy", "_step", "_timer")

    def __init__(self, clock: Clock, step: Callable[[], bool], on_busy: OnBusy = ignore_busy) -> None:
        self._clock = clock
        self._step = step
        self._on_busy = on_busy
        self._timer: Timer | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether the next step comes in a later turn."""
        return self._timer is not None

    def resume(self) -> None:
        """There is something to do: a step in the next turn, unless one is to come already."""
        if self._timer is None:
            self._timer = self._clock.call_later(0, self._run)
            self._on_busy(self, True)

    def stop(self) -> None:
        """No step comes any more until `resume`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._on_busy(self, False)

    def _run(self) -> None:
        self._timer = None
        try:
            if self._step():
                self.resume()
        finally:
            if self._timer is None:
                self._on_busy(self, False)
