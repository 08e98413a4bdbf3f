"""CpuMeter: the time that the loop's thread computes for one owner after another.

Work for one owner may happen inside that of another: an append answers the fetch that waited for it. Each owner is told its own time,
without that of others inside it.

The thread's CPU time is asked from the system by a call, which would cost as much as some requests. So what takes less than a millisecond
is measured by the monotonic clock, and only what takes longer may have waited: for the processor, or for a page of a file. It counts at
most for the CPU time since a call that was less than a millisecond before its beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

CALL_INTERVAL_NS = 1_000_000


class Outer(NamedTuple):
    """Whose time was measured before, since when, the CPU time not later than that, and what others took of it."""

    owner: object | None
    start_ns: int
    start_cpu_ns: int
    others_ns: int


_NOBODY = Outer(None, 0, 0, 0)


class CpuMeter:
    """One for each loop. The arguments are the clock's."""

    __slots__ = ("_called_cpu_ns", "_called_ns", "_cpu_ns", "_monotonic_ns", "_others_ns", "_start_cpu_ns", "_start_ns", "is_on", "owner")

    def __init__(self, monotonic_ns: Callable[[], int], cpu_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._cpu_ns = cpu_ns
        self._called_ns = -CALL_INTERVAL_NS
        self._called_cpu_ns = 0
        self._start_ns = 0
        self._start_cpu_ns = 0
        self._others_ns = 0
        self.is_on = False
        """Whether anybody wants to know. It measures in any case; who calls it asks first."""
        self.owner: object | None = None
        """Whose time is measured now."""

    def begin(self, owner: object) -> Outer | None:
        """Measure the time of `owner`. Returns what `end` takes; None if it is measured already, and then nothing is to be ended."""
        if self.owner is owner:
            return None
        outer = _NOBODY if self.owner is None else Outer(self.owner, self._start_ns, self._start_cpu_ns, self._others_ns)
        now_ns = self._monotonic_ns()
        if now_ns - self._called_ns >= CALL_INTERVAL_NS:
            self._called_cpu_ns = self._cpu_ns()
            now_ns = self._called_ns = self._monotonic_ns()
        self.owner, self._others_ns, self._start_ns, self._start_cpu_ns = owner, 0, now_ns, self._called_cpu_ns
        return outer

    def own_ns(self) -> int:
        """Returns the present owner's time since `begin`."""
        return max(self._elapsed_ns() - self._others_ns, 0)

    def end(self, outer: Outer) -> int:
        """Returns the owner's time since `begin`, and goes on with the one before."""
        elapsed_ns = self._elapsed_ns()
        own_ns = max(elapsed_ns - self._others_ns, 0)
        self.owner, self._start_ns, self._start_cpu_ns, others_ns = outer
        self._others_ns = others_ns + elapsed_ns
        return own_ns

    def _elapsed_ns(self) -> int:
        elapsed_ns = self._monotonic_ns() - self._start_ns
        return elapsed_ns if elapsed_ns < CALL_INTERVAL_NS else min(elapsed_ns, self._cpu_ns() - self._start_cpu_ns)


def standing_meter() -> CpuMeter:
    """A meter of a clock that stands."""
    return CpuMeter(lambda: 0, lambda: 0)


class NetworkTime:
    """What the bytes of one connection take outside of its requests, in ns: sending, and the work of TLS on them. Its next request counts
    it (KafkaChannel.getAndResetNetworkThreadTimeNanos)."""

    __slots__ = ("_spent_ns", "meter")

    def __init__(self, meter: CpuMeter) -> None:
        self.meter = meter
        self._spent_ns = 0

    def begin(self) -> Outer | None:
        """Call it while `meter.is_on`. Returns what `end` takes; None if nothing is to be ended."""
        return self.meter.begin(self)

    def end(self, begun: Outer) -> None:
        """What was begun is done."""
        self._spent_ns += self.meter.end(begun)

    def take(self) -> int:
        """Returns the time since the last call."""
        spent_ns, self._spent_ns = self._spent_ns, 0
        return spent_ns


UNMEASURED = NetworkTime(standing_meter())
"""Of connections whose requests nobody counts."""
