"""ManualClock: timers fire in due order, inside `advance`, at their own time."""

from __future__ import annotations

from tests.support.clock import ManualClock


def test_advance_fires_timers_in_due_order_at_their_own_time() -> None:
    clock = ManualClock()
    fired: list[tuple[str, int]] = []
    clock.call_later(20, lambda: fired.append(("late", clock.monotonic_ms())))
    clock.call_later(10, lambda: fired.append(("early", clock.monotonic_ms())))

    clock.advance(20)

    assert fired == [("early", 10), ("late", 20)]


def test_advance_fires_timers_armed_by_timers_within_the_step() -> None:
    clock = ManualClock()
    fired: list[int] = []
    clock.call_later(10, lambda: clock.call_later(5, lambda: fired.append(clock.monotonic_ms())))

    clock.advance(14)
    assert fired == []
    clock.advance(1)

    assert fired == [15]


def test_cancelled_timer_never_fires_and_is_not_pending() -> None:
    clock = ManualClock()
    fired: list[str] = []
    timer = clock.call_later(10, fired.append, "cancelled")
    timer.cancel()
    timer.cancel()

    clock.advance(100)

    assert fired == []
    assert clock.pending_timers == []


def test_wall_clock_follows_the_steps_and_can_jump_alone() -> None:
    clock = ManualClock(now_ms=1000)

    clock.advance(5)
    clock.jump_wall(-500)

    assert clock.now_ms() == 505
    assert clock.monotonic_ms() == 5
