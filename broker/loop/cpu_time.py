"""CpuMeter: the CPU time that the loop's thread takes for one owner after another.

Work for one owner may happen inside that of another: an append answers the fetch that waited for it. Each owner is told its own time,
without that of others inside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class _Outer(NamedTuple):
    """Whose time was measured before, since when, and what others took of it."""

    owner: object | None
    start_ns: int
    others_ns: int


class CpuMeter:
    """One for each loop. `cpu_ns` is the clock's."""

    __slots__ = ("_cpu_ns", "_others_ns", "_start_ns", "owner")

    def __init__(self, cpu_ns: Callable[[], int]) -> None:
        self._cpu_ns = cpu_ns
        self._start_ns = 0
        self._others_ns = 0
        self.owner: object | None = None
        """Whose time is measured now."""

    def begin(self, owner: object) -> _Outer | None:
        """Measure the time of `owner`. Returns what `end` takes; None if it is measured already, and then nothing is to be ended."""
        if self.owner is owner:
            return None
        outer = _Outer(self.owner, self._start_ns, self._others_ns)
        self.owner, self._others_ns, self._start_ns = owner, 0, self._cpu_ns()
        return outer

    def own_ns(self) -> int:
        """Returns the present owner's time since `begin`."""
        return self._cpu_ns() - self._start_ns - self._others_ns

    def end(self, outer: _Outer) -> int:
        """Returns the owner's time since `begin`, and goes on with the one before."""
        taken_ns = self._cpu_ns() - self._start_ns
        own_ns = taken_ns - self._others_ns
        self.owner, self._start_ns, self._others_ns = outer.owner, outer.start_ns, outer.others_ns + taken_ns
        return own_ns
