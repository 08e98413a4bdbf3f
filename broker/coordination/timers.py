"""Named timers of one shard, which end with the shard (Kafka's CoordinatorTimer).

A timer runs an operation that may produce records, so the shard runs the operation and writes its result.
Most timers are session timeouts. Every heartbeat and every commit postpones them, and they almost never fire. Postponing only changes the
deadline; the clock's timer fires too early then and is armed again for the rest (0.5 µs instead of a cancel and a call).

Thousands may fall due together, such as the sessions of all members that were gone when a coordinator had loaded. A LoopJob runs the
operations of all shards in the order in which they fell due. The end of a session takes 0.2 ms, because the group rebalances and writes a
record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from broker.coordination.records import CoordinatorResult
from broker.loop.clock import Clock, Timer
from broker.loop.job import LoopJob

RETRY_BACKOFF_MS = 500
"""As in Kafka's CoordinatorRuntime."""

Operation = Callable[[], CoordinatorResult | None]
TimerKey = tuple[str, ...]
"""The timer's purpose, then the ids of its owner."""


Run = Callable[[Operation, Callable[[], None] | None], None]
"""Executes an operation. The second argument, if not None, is called when the operation's records were refused."""


class _Entry:
    __slots__ = ("deadline_ms", "fires_at_ms", "is_retried", "operation", "timer")

    def __init__(self, deadline_ms: float, operation: Operation, *, is_retried: bool) -> None:
        self.deadline_ms = deadline_ms
        self.fires_at_ms = deadline_ms
        self.operation = operation
        self.is_retried = is_retried
        self.timer: Timer | None = None


class DueTimers:
    """Calls due timers in the order in which they fell due, in later turns of the loop."""

    def __init__(self, clock: Clock) -> None:
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._job = LoopJob(clock, self._call_waiting)

    def call(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call `callback` in a later turn. It checks that its timer is still due, which may be cancelled or postponed until then."""
        self._waiting.append((callback, arguments))
        self._job.resume()

    def stop(self) -> None:
        """Drop all waiting calls."""
        self._waiting.clear()
        self._job.stop()

    def _call_waiting(self) -> Generator[None, None, None]:
        try:
            while self._waiting:
                callback, arguments = self._waiting.popleft()
                callback(*arguments)
                yield
        finally:
            if self._waiting:
                self._job.resume()  # a callback failed: the ones behind it are still called


class CoordinatorTimers:
    """At most one timer per key. `run` executes an operation that fell due, when `due`, which all shards share, calls it."""

    def __init__(self, clock: Clock, due: DueTimers, run: Run) -> None:
        self._clock = clock
        self._due = due
        self._run = run
        self._entries: dict[TimerKey, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def count(self, purpose: str) -> int:
        """How many timers have this purpose. Looks at all."""
        return sum(key[0] == purpose for key in self._entries)

    def schedule(self, key: TimerKey, delay_ms: float, operation: Operation, *, is_retried: bool = False) -> None:
        """Run `operation` in `delay_ms`, in place of any operation that was scheduled under `key`.

        With `is_retried` the operation is run again until its records are written or another operation is scheduled under `key`. That is
        for operations that no later event would repeat."""
        deadline_ms = self._clock.monotonic_ms() + delay_ms
        entry = self._entries.get(key)
        if entry is not None and entry.fires_at_ms <= deadline_ms:
            entry.deadline_ms = deadline_ms
            entry.operation = operation
            entry.is_retried = is_retried
            return
        if entry is not None and entry.timer is not None:
            entry.timer.cancel()
        entry = self._entries[key] = _Entry(deadline_ms, operation, is_retried=is_retried)
        entry.timer = self._clock.call_later(delay_ms, self._fire, key, entry)

    def schedule_if_absent(self, key: TimerKey, delay_ms: float, operation: Operation, *, is_retried: bool = False) -> None:
        """The same, unless an operation is scheduled under `key` already."""
        if key not in self._entries:
            self.schedule(key, delay_ms, operation, is_retried=is_retried)

    def try_again(self, key: TimerKey, operation: Operation) -> None:
        """Run a refused operation once more, after a backoff, unless another one is scheduled under `key` by now."""
        self.schedule_if_absent(key, RETRY_BACKOFF_MS, operation, is_retried=True)

    def cancel(self, key: TimerKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None and entry.timer is not None:
            entry.timer.cancel()

    def cancel_all(self) -> None:
        for key in list(self._entries):
            self.cancel(key)

    def _fire(self, key: TimerKey, entry: _Entry) -> None:
        if self._is_due(key, entry):
            self._due.call(self._end, key, entry)

    def _end(self, key: TimerKey, entry: _Entry) -> None:
        """Run the operation, if the timer is still due after it has waited for its turn."""
        if self._is_due(key, entry):
            del self._entries[key]
            self._run(entry.operation, partial(self.try_again, key, entry.operation) if entry.is_retried else None)

    def _is_due(self, key: TimerKey, entry: _Entry) -> bool:
        """Whether the timer was neither cancelled nor postponed. A postponed timer is armed again."""
        if self._entries.get(key) is not entry:
            return False
        remaining_ms = entry.deadline_ms - self._clock.monotonic_ms()
        if remaining_ms > 0:
            entry.fires_at_ms = entry.deadline_ms
            entry.timer = self._clock.call_later(remaining_ms, self._fire, key, entry)
            return False
        return True
