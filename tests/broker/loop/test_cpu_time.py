"""CpuMeter: each owner is told its own time."""

from __future__ import annotations

from broker.loop.cpu_time import CpuMeter
from tests.support.clock import ManualClock

MS = 1_000_000


def test_time_of_others_inside_is_theirs() -> None:
    clock = ManualClock()
    meter = CpuMeter(clock.monotonic_ns, clock.cpu_ns)

    outer = meter.begin("append")
    clock.compute(3)
    inner = meter.begin("fetch")
    clock.compute(5)
    assert outer is not None and inner is not None
    assert meter.own_ns() == 5 * MS
    assert meter.end(inner) == 5 * MS
    clock.compute(1)

    assert meter.own_ns() == 4 * MS
    assert meter.end(outer) == 4 * MS


def test_an_owner_that_is_measured_is_not_begun_again() -> None:
    clock = ManualClock()
    meter = CpuMeter(clock.monotonic_ns, clock.cpu_ns)

    outer = meter.begin("append")
    clock.compute(1)

    assert meter.begin("append") is None
    assert outer is not None
    assert meter.end(outer) == MS


def test_waits_take_no_cpu_time() -> None:
    clock = ManualClock()
    meter = CpuMeter(clock.monotonic_ns, clock.cpu_ns)

    outer = meter.begin("append")
    clock.advance(1000)

    assert outer is not None
    assert meter.end(outer) == 0


def test_a_wait_counts_for_no_more_than_was_computed_shortly_before() -> None:
    """The processor's time is asked for once a millisecond at most."""
    clock = ManualClock()
    meter = CpuMeter(clock.monotonic_ns, clock.cpu_ns)
    first = meter.begin("first")
    clock.compute(0.5)
    assert first is not None
    assert meter.end(first) == MS // 2

    outer = meter.begin("second")
    clock.compute(0.25)
    clock.advance(1000)

    assert outer is not None
    assert meter.end(outer) == MS * 3 // 4
