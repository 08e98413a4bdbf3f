"""Named timers that are pushed back far more often than they fire."""

from collections.abc import Callable

import pytest

from broker.coordination.records import CoordinatorResult
from broker.coordination.timers import RETRY_BACKOFF_MS, CoordinatorTimers, DueTimers, Operation
from broker.loop import job
from tests.support.clock import ManualClock

MANY = 20


class Bench:
    """Timers whose operations only say their name; `fired` has who fired when."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fired: list[tuple[str, int]] = []
        self.timers = CoordinatorTimers(self.clock, DueTimers(self.clock), lambda *given: self._run(*given))
        self.is_refusing = False

    def _run(self, operation: Operation, retry: Callable[[], None] | None) -> None:
        operation()
        if self.is_refusing and retry is not None:
            retry()

    def schedule(self, key: str, delay_ms: int, name: str, *, is_retried: bool = False) -> None:
        def operation() -> CoordinatorResult | None:
            self.fired.append((name, self.clock.monotonic_ms()))
            return None

        self.timers.schedule((key,), delay_ms, operation, is_retried=is_retried)


def test_timer_fires_once_when_it_is_due():
    bench = Bench()

    bench.schedule("a", 10, "first")
    bench.clock.advance(100)

    assert bench.fired == [("first", 10)]
    assert len(bench.timers) == 0


def test_timer_pushed_back_fires_at_its_last_deadline_only():
    bench = Bench()
    bench.schedule("a", 10, "first")

    for _ in range(3):
        bench.clock.advance(9)
        bench.schedule("a", 10, "again")
    bench.clock.advance(100)

    assert bench.fired == [("again", 37)]


def test_timer_pulled_forward_fires_early():
    bench = Bench()

    bench.schedule("a", 100, "late")
    bench.schedule("a", 10, "early")
    bench.clock.advance(200)

    assert bench.fired == [("early", 10)]


def test_timer_that_is_there_is_not_scheduled_again_if_that_was_not_wanted():
    bench = Bench()
    bench.schedule("a", 10, "first")

    bench.timers.schedule_if_absent(("a",), 5, lambda: None)
    bench.timers.schedule_if_absent(("b",), 20, lambda: bench.fired.append(("other", bench.clock.monotonic_ms())))
    bench.clock.advance(100)

    assert bench.fired == [("first", 10), ("other", 20)]


def test_pushing_back_arms_no_second_timer():
    bench = Bench()

    for _ in range(100):
        bench.schedule("a", 10, "again")

    assert len(bench.clock.pending_timers) == 1


def test_cancelled_timers_do_not_fire():
    bench = Bench()
    bench.schedule("a", 10, "a")
    bench.schedule("b", 10, "b")
    bench.schedule("c", 10, "c")

    bench.timers.cancel(("a",))
    bench.timers.cancel(("unknown",))
    bench.clock.advance(5)
    bench.timers.cancel_all()
    bench.clock.advance(100)

    assert bench.fired == []
    assert bench.clock.pending_timers == []


def test_timers_that_fall_due_together_let_others_have_their_turns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job, "SLICE_US", 0)  # time stands still on a ManualClock, so a slice would never be over
    bench = Bench()
    served: list[int] = []
    for number in range(MANY):
        bench.schedule(str(number), 10, str(number))

    def serve() -> None:
        served.append(len(bench.fired))
        if len(served) < 3:
            bench.clock.call_later(0, serve)

    bench.clock.call_later(10, serve)
    bench.clock.advance(10)

    assert served == [0, 1, 2]
    assert [name for name, _ in bench.fired] == [str(number) for number in range(MANY)]
    assert bench.clock.pending_timers == []


def test_timer_that_is_cancelled_or_pushed_back_while_it_waits_for_its_turn_does_not_fire():
    bench = Bench()
    for number in range(MANY):
        bench.schedule(str(number), 10, "others")
    bench.schedule("cancelled", 10, "cancelled")
    bench.schedule("pushed back", 10, "too early")

    def hear_of_both() -> None:
        bench.timers.cancel(("cancelled",))
        bench.schedule("pushed back", 10, "pushed back")

    bench.clock.call_later(10, hear_of_both)
    bench.clock.advance(100)

    assert bench.fired == [("others", 10)] * MANY + [("pushed back", 20)]


def test_timer_that_fails_does_not_keep_those_behind_it_waiting():
    bench = Bench()

    def fail() -> CoordinatorResult | None:
        raise RuntimeError("ours")

    for number in range(MANY):
        bench.schedule(str(number), 10, "others")
    bench.timers.schedule(("failing",), 10, fail)
    bench.schedule("behind", 10, "behind")

    with pytest.raises(RuntimeError):
        bench.clock.advance(10)
    bench.clock.advance(1)

    assert bench.fired[-1] == ("behind", 10)


def test_operation_whose_records_are_refused_is_run_again_if_it_is_to_be():
    bench = Bench()
    bench.is_refusing = True
    bench.schedule("a", 10, "again", is_retried=True)
    bench.schedule("b", 10, "once")

    bench.clock.advance(10 + RETRY_BACKOFF_MS)
    bench.is_refusing = False
    bench.clock.advance(10 * RETRY_BACKOFF_MS)

    assert bench.fired == [("again", 10), ("once", 10), ("again", 10 + RETRY_BACKOFF_MS), ("again", 10 + 2 * RETRY_BACKOFF_MS)]
    assert bench.clock.pending_timers == []


def test_operation_is_not_run_again_once_something_else_is_scheduled():
    bench = Bench()
    bench.is_refusing = True
    bench.schedule("a", 10, "refused", is_retried=True)

    bench.clock.advance(10)
    bench.is_refusing = False
    bench.schedule("a", 3 * RETRY_BACKOFF_MS, "later")
    bench.clock.advance(10 * RETRY_BACKOFF_MS)

    assert bench.fired == [("refused", 10), ("later", 10 + 3 * RETRY_BACKOFF_MS)]
