"""What was measured, kept in memory for 24 hours and coarser with age: an hour in steps of 10 s, a day in steps of 5 minutes.

A series is two rings of doubles, 5.8 KB with its name. All together, of all clusters, take at most BYTES_MAX; what comes later is not kept.
One thread adds, others read.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

BYTES_MAX = 64_000_000
NOTHING = math.nan


@dataclass(frozen=True, slots=True)
class Step:
    """One fineness: `count` values of `step_s` seconds each."""

    step_s: int
    count: int

    @property
    def span_s(self) -> int:
        return self.step_s * self.count


FINE, COARSE = Step(10, 360), Step(300, 288)
SERIES_BYTES = 8 * (FINE.count + COARSE.count) + 616
"""With the objects around it and a name of 249 characters, as measured."""
SERIES_MAX = BYTES_MAX // SERIES_BYTES


class _Rings:
    """All series in one fineness. The value of the time t is at t // step_s modulo count, and is the mean of what came in that time."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self._series: dict[str, array[float]] = {}
        self._newest = -1
        self._came: dict[str, int] = {}

    def add(self, time_s: float, values: Mapping[str, float], room: int) -> None:
        slot = int(time_s) // self.step.step_s
        if slot != self._newest:
            self._turn_to(slot)
        place = slot % self.step.count
        for name, value in values.items():
            ring = self._series.get(name)
            if ring is None:
                if len(self._series) >= room:
                    continue
                ring = self._series[name] = array("d", [NOTHING]) * self.step.count
            came = self._came[name] = self._came.get(name, 0) + 1
            before = ring[place]
            ring[place] = value if came == 1 or math.isnan(before) else before + (value - before) / came

    def read(self, name: str) -> list[tuple[int, float]]:
        """Times in seconds with their values, oldest first; times without a value are left out."""
        ring, step = self._series.get(name), self.step
        if ring is None:
            return []
        slots = range(self._newest - step.count + 1, self._newest + 1)
        return [(slot * step.step_s, value) for slot in slots if not math.isnan(value := ring[slot % step.count])]

    def keep(self, names: set[str]) -> None:
        self._series = {name: ring for name, ring in self._series.items() if name in names}

    def _turn_to(self, slot: int) -> None:
        """Forget what lies a turn of the ring back."""
        gone = range(max(self._newest + 1, slot - self.step.count + 1), slot + 1)
        for ring in self._series.values():
            for each in gone:
                ring[each % self.step.count] = NOTHING
        self._newest, self._came = slot, {}


class History:
    """The series of one cluster, by name."""

    def __init__(self, series_max: int = SERIES_MAX) -> None:
        self._series_max = series_max
        self._lock = threading.Lock()
        self._fine, self._coarse = _Rings(FINE), _Rings(COARSE)

    def add(self, time_s: float, values: Mapping[str, float]) -> None:
        with self._lock:
            for rings in (self._fine, self._coarse):
                rings.add(time_s, values, self._series_max)

    def keep(self, names: set[str]) -> None:
        """Forget the series of all others: topics and groups that are gone."""
        with self._lock:
            for rings in (self._fine, self._coarse):
                rings.keep(names)

    def hour(self, name: str) -> list[tuple[int, float]]:
        with self._lock:
            return self._fine.read(name)

    def day(self, name: str) -> list[tuple[int, float]]:
        with self._lock:
            return self._coarse.read(name)

    def slope(self, name: str, seconds: float = 600.0) -> float | None:
        """By how much it grows in a second, over the last minutes (least squares); None with less than three values."""
        points = self.hour(name)
        points = [each for each in points if each[0] >= points[-1][0] - seconds]
        if len(points) < 3:
            return None
        mean_x = sum(x for x, _ in points) / len(points)
        mean_y = sum(y for _, y in points) / len(points)
        spread = sum((x - mean_x) ** 2 for x, _ in points)
        return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
