"""When the garbage collector looks for cycles, and at what.

References alone free what is large (tests/broker/network/test_connection_end.py) and what a request made
(tests/broker/test_no_cycles.py), so the collector only has to find small cycles. A collection stops the loop for nearly 0.1 µs an object
that it looks at: 12 to 20 ms of CPU for 200,000. So none looks at everything: Python's own look at 20,000 objects at most, those that are
new, 1 to 3 ms; and what lives after COLLECT_INTERVAL_MS is frozen, so that no later collection looks at it.
"""

from __future__ import annotations

import gc

from broker.loop.clock import Clock, Timer

THRESHOLDS = (10_000, 0, 1_000_000)  # new objects; collections of the youngest before the next ones; never everything
COLLECT_INTERVAL_MS = 10_000
_MIDDLE = 1


class GarbageCollection:
    """The collector's schedule, for the whole process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer: Timer | None = None

    def start(self) -> None:
        """What lives now is never looked at; nor is anything collected now, while the first client waits."""
        gc.freeze()
        self._timer = self._clock.call_later(COLLECT_INTERVAL_MS, self._collect)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _collect(self) -> None:
        self._timer = self._clock.call_later(COLLECT_INTERVAL_MS, self._collect)
        gc.collect(_MIDDLE)
        gc.freeze()
