"""What is told of the last loads of a coordinator's partitions."""

from __future__ import annotations

from broker.loop.recent_times import SPAN_MS, RecentTimes
from tests.support.clock import ManualClock


def test_the_longest_and_the_average_load_of_the_last_minute_are_told() -> None:
    clock = ManualClock()
    times = RecentTimes(clock)
    assert (times.max_ms, times.average_ms) == (0, 0)

    for elapsed_ms in (900, 100, 300):
        start_ms = clock.monotonic_ms()
        clock.advance(elapsed_ms)
        times.record(start_ms)
    assert (times.max_ms, round(times.average_ms)) == (900, 433)

    clock.advance(SPAN_MS - 300)
    assert (times.max_ms, times.average_ms) == (300, 300)
