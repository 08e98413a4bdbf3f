"""When the garbage collector looks for cycles, and at what.

References alone free what is large (tests/broker/network/test_connection_end.py), so the collector only has to find small cycles. A
collection stops the loop for nearly 0.1 µs an object that it looks at: 12 to 20 ms of CPU for 200,000. So none looks at everything:
- Python's own collections look at 20,000 objects at most, those that are new: 1 to 3 ms, however large the state is. Every other one looks
  once more at what lived through the one before; to do that only after four took no less work, and 4 to 13 ms at once.
- Each COLLECT_INTERVAL_MS, or after a TICK_MS in which many objects were made, the rest of the new ones is looked at, and what lives is
  frozen: no later collection looks at it. While 200,000 objects came about in 20 s that took up to 0.6 ms, all at once 2.1 ms.
- None of Python's own begins while large requests go in turns (broker/turns.py) or jobs of the broker's own go step by step
  (broker/loop_job.py): a request of 190,000 entries consists of millions of references, which a collection follows for 20 to 60 ms,
  and all of it is freed without one; 9,000 new partitions, which all stay, cost 12 to 24 ms a collection.
- If that lasts longer than BUSY_INTERVAL_MAX_MS, what is new is looked at if it is little, and else frozen unseen: minutes of making
  topics had left so much that one collection took 360 ms.
- What became garbage after it was frozen is found by a deep collection, 29 ms for 200,000: once in DEEP_INTERVAL_MS when no client has
  sent anything for IDLE_MS, and without waiting for that after DEEP_INTERVAL_MAX_MS.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from broker.clock import Clock, Timer

THRESHOLDS = (10_000, 0, 1_000_000)  # new objects; collections of the youngest before the next ones; never everything
TICK_MS = 1_000
COLLECT_INTERVAL_MS = 10_000
BUSY_INTERVAL_MAX_MS = 60_000
DEEP_INTERVAL_MS = 3_600_000
DEEP_INTERVAL_MAX_MS = 6 * DEEP_INTERVAL_MS
BUSY_OBJECTS_MAX = 2 * THRESHOLDS[0]
"""New objects up to which a collection is harmless: Python's own look at as many."""
IDLE_MS = 1_000

_OLD = 2
_MIDDLE = 1


class CollectionPause:
    """Python begins no collection while work that is done in pieces is unfinished. One object for the process; `note` is given as OnBusy to
    all code that does such work."""

    def __init__(self) -> None:
        self._works: set[object] = set()

    def note(self, work: object, is_busy: bool) -> None:
        """`work` is not finished, or is. What is garbage meanwhile waits for BUSY_INTERVAL_MAX_MS at most.

        What lives when the last one ends is frozen: large works made it, and the first collection would look at all of it at once, 50 to
        250 ms after one that made 9,000 partitions or altered 95,000 resources."""
        if is_busy:
            self._works.add(work)
            gc.disable()
        elif work in self._works:
            self._works.remove(work)
            if not self._works:
                gc.freeze()
                gc.enable()


class GarbageCollection:
    """The collector's schedule, for the whole process. `idle_ms()` returns for how long no client has sent anything."""

    def __init__(self, clock: Clock, idle_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._idle_ms = idle_ms
        self._collected_ms = self._deep_ms = clock.monotonic_ms()
        self._timer: Timer | None = None

    def start(self) -> None:
        """What lives now is not looked at before the first deep collection; nor is anything collected now, while the first client waits."""
        gc.freeze()
        self._timer = self._clock.call_later(TICK_MS, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self._clock.call_later(TICK_MS, self._tick)
        now = self._clock.monotonic_ms()
        if not gc.isenabled() and now - self._collected_ms < BUSY_INTERVAL_MAX_MS:
            return
        since_deep_ms = now - self._deep_ms
        if not gc.isenabled() and gc.get_count()[0] > BUSY_OBJECTS_MAX:
            pass  # frozen unseen
        elif since_deep_ms >= DEEP_INTERVAL_MAX_MS or (since_deep_ms >= DEEP_INTERVAL_MS and self._idle_ms() >= IDLE_MS):
            self._deep_ms = now
            gc.unfreeze()
            gc.collect()
        elif now - self._collected_ms >= COLLECT_INTERVAL_MS or gc.get_count()[_OLD]:
            gc.collect(_MIDDLE)  # objects of the old generation were examined when they entered it
        else:
            return
        self._collected_ms = now
        gc.freeze()
