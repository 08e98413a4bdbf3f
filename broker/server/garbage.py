"""The schedule of the garbage collector.

Reference counts free large objects (tests/broker/network/test_connection_end.py) and the objects of requests
(tests/broker/test_no_cycles.py), so the collector only has to find small cycles. A collection stops the loop for nearly 0.1 µs for each
object that it visits: 12 to 20 ms of CPU for 200,000. So no collection visits everything. Python's own visit at most 20,000 new objects, 1
to 3 ms. Objects that are alive after COLLECT_INTERVAL_MS are frozen, so no later collection visits them.
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
        """Freeze all present objects, without a collection: the first client is waiting."""
        gc.freeze()
        self._timer = self._clock.call_later(COLLECT_INTERVAL_MS, self._collect)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _collect(self) -> None:
        self._timer = self._clock.call_later(COLLECT_INTERVAL_MS, self._collect)
        gc.collect(_MIDDLE)
        gc.freeze()
