"""Named timers of one shard, which end with its life (Kafka's CoordinatorTimer).

A timer runs an operation that may produce records, so firing hands the operation to the shard instead of calling it alone.
Most are session timeouts, pushed back by every heartbeat and every commit, and almost never fire: pushing back only moves the
deadline, and the clock's timer, when it fires too early, is armed again for the rest (0.5 µs instead of a cancel and a call).
"""

from __future__ import annotations

from collections.abc import Callable

from broker.clock import Clock, Timer
from broker.coordination.records import CoordinatorResult

Operation = Callable[[], CoordinatorResult | None]
TimerKey = tuple[str, ...]
"""What the timer is for, then whose it is."""


class _Entry:
    __slots__ = ("deadline_ms", "fires_at_ms", "operation", "timer")

    def __init__(self, deadline_ms: float, operation: Operation) -> None:
        self.deadline_ms = deadline_ms
        self.fires_at_ms = deadline_ms
        self.operation = operation
        self.timer: Timer | None = None


class CoordinatorTimers:
    """At most one timer per key. `run` executes an operation that fell due."""

    def __init__(self, clock: Clock, run: Callable[[Operation], None]) -> None:
        self._clock = clock
        self._run = run
        self._entries: dict[TimerKey, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def schedule(self, key: TimerKey, delay_ms: float, operation: Operation) -> None:
        """Run `operation` in `delay_ms`, in place of whatever was scheduled under `key`."""
        deadline_ms = self._clock.monotonic_ms() + delay_ms
        entry = self._entries.get(key)
        if entry is not None and entry.fires_at_ms <= deadline_ms:
            entry.deadline_ms = deadline_ms
            entry.operation = operation
            return
        if entry is not None and entry.timer is not None:
            entry.timer.cancel()
        entry = self._entries[key] = _Entry(deadline_ms, operation)
        entry.timer = self._clock.call_later(delay_ms, self._fire, key, entry)

    def cancel(self, key: TimerKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None and entry.timer is not None:
            entry.timer.cancel()

    def cancel_all(self) -> None:
        for key in list(self._entries):
            self.cancel(key)

    def _fire(self, key: TimerKey, entry: _Entry) -> None:
        if self._entries.get(key) is not entry:
            return
        remaining_ms = entry.deadline_ms - self._clock.monotonic_ms()
        if remaining_ms > 0:
            entry.fires_at_ms = entry.deadline_ms
            entry.timer = self._clock.call_later(remaining_ms, self._fire, key, entry)
            return
        del self._entries[key]
        self._run(entry.operation)
