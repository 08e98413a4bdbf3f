"""Rates and throttle times, by the cases of RateTest and QuotaUtilsTest and beside a reference that walks all samples each time."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest

from broker.security.quotas.rate import THROTTLE_TIME_MAX_MS, Rate
from broker.security.quotas.sampled_sum import Average


@dataclass
class Sample:
    start_ms: int
    last_event_ms: int
    value: float = 0.0

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_event_ms = now_ms
        self.value = 0.0


@dataclass
class ReferenceRate:
    """Kafka's SampledStat and Rate, line by line."""

    window_ms: int
    samples_count: int
    samples: list[Sample] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.samples:
            self.samples.append(Sample(now_ms, now_ms))
        sample = self.samples[self.current]
        if now_ms - sample.start_ms >= self.window_ms:
            self.current = (self.current + 1) % (self.samples_count + 1)
            if self.current >= len(self.samples):
                self.samples.append(Sample(now_ms, now_ms))
            else:
                self.samples[self.current].reset(now_ms)
            sample = self.samples[self.current]
        sample.value += value
        sample.last_event_ms = now_ms

    def purge(self, now_ms: int) -> None:
        for sample in self.samples:
            if now_ms - sample.last_event_ms >= self.samples_count * self.window_ms:
                sample.reset(now_ms)

    def span_ms(self, now_ms: int) -> int:
        self.purge(now_ms)
        if not self.samples:
            self.samples.append(Sample(now_ms, now_ms))
        elapsed_ms = now_ms - min(sample.start_ms for sample in self.samples)
        full_windows_count = elapsed_ms // self.window_ms
        if full_windows_count < self.samples_count - 1:
            elapsed_ms += (self.samples_count - 1 - full_windows_count) * self.window_ms
        return max(elapsed_ms, 1)

    def per_second(self, now_ms: int) -> float:
        self.purge(now_ms)
        return sum(sample.value for sample in self.samples) / (self.span_ms(now_ms) / 1000)


@pytest.mark.parametrize("seed", range(40))
def test_rate_is_that_of_a_reference_after_random_records_and_pauses(seed: int) -> None:
    source = random.Random(seed)
    window_ms, windows_count = source.choice([(1000, 11), (1000, 1), (200, 2), (30_000, 2)])
    rate, reference = Rate(window_ms, windows_count), ReferenceRate(window_ms, windows_count)
    now_ms = source.choice([0, 1_700_000_000_000])

    for _ in range(1500):
        step = source.random()
        now_ms += 0 if step < 0.3 else source.randrange(window_ms // 4) if step < 0.98 else source.randrange(window_ms * windows_count * 2)
        if source.random() < 0.7:
            value = source.choice([1, 400, -200, 5_000_000])
            rate.record(value, now_ms)
            reference.record(value, now_ms)
        if source.random() < 0.5:
            assert rate.per_second(now_ms) == reference.per_second(now_ms)
            assert rate.span_ms(now_ms) == reference.span_ms(now_ms)


def test_fractions_are_summed_without_growing_errors() -> None:
    rate, reference = Rate(1000, 11), ReferenceRate(1000, 11)

    for now_ms in range(0, 100_000, 7):
        rate.record(0.1, now_ms)
        reference.record(0.1, now_ms)

    assert rate.per_second(100_000) == pytest.approx(reference.per_second(100_000), rel=1e-12)


@pytest.mark.parametrize(("windows_count", "window_s"), [(1, 1), (1, 11), (11, 1), (11, 11)])
def test_windows_before_the_first_record_count_as_empty(windows_count: int, window_s: int) -> None:
    rate = Rate(window_s * 1000, windows_count)
    rate.record(50, 0)
    now_ms = window_s * 1000 - 1

    assert rate.per_second(now_ms) == pytest.approx(50 / (now_ms / 1000 + (windows_count - 1) * window_s))


def test_rate_is_consistent_after_the_first_window() -> None:
    """A sample that overlaps the beginning of the windows counts whole, and so does its time."""
    rate = Rate(1000, 2)
    steps_ms = [0, 99, *[100] * 9]
    now_ms = 0
    for step_ms in steps_ms:
        now_ms += step_ms
        rate.record(1, now_ms)
    now_ms += 101

    for step_ms in steps_ms:
        now_ms += step_ms
        rate.record(1, now_ms)
        assert 10 <= rate.per_second(now_ms) <= 11
        assert rate.per_second(now_ms) == rate.per_second(now_ms)


def test_rate_without_records_is_zero() -> None:
    assert Rate(1000, 11).per_second(5) == 0


def test_what_is_taken_back_brings_the_rate_back() -> None:
    rate = Rate(1000, 11)
    rate.record(100, 0)

    rate.record(900, 10)
    rate.record(-900, 10)

    assert rate.per_second(10) == 100 / 10.01


def with_rate(per_second: float, windows_count: int) -> Rate:
    """Its sample has just begun, so the sum is divided by N-1 windows of a second."""
    rate = Rate(1000, windows_count)
    rate.record(per_second * (windows_count - 1), 0)
    return rate


@pytest.mark.parametrize(
    ("per_second", "limit", "windows_count", "throttle_time_ms"),
    [
        (16.5, 16.5, 10, 0),
        (16.5, 16.5, 11, 0),
        (16.5, 20.4, 10, 0),
        (100, 50, 3, 2000),
        (55, 50, 2, 100),
        (100, math.nan, 3, 0),
        (1e18, 1, 11, THROTTLE_TIME_MAX_MS),
        (1, 0, 11, THROTTLE_TIME_MAX_MS),
    ],
)
def test_throttle_time_is_what_the_limit_asks(per_second: float, limit: float, windows_count: int, throttle_time_ms: int) -> None:
    assert with_rate(per_second, windows_count).throttle_time_ms(limit, 0) == throttle_time_ms


@pytest.mark.parametrize(("per_second", "throttle_time_ms"), [(1000.25, 0), (1000.5, 1), (1001.5, 2)])
def test_throttle_time_is_rounded_half_up(per_second: float, throttle_time_ms: int) -> None:
    assert with_rate(per_second, 2).throttle_time_ms(1000, 0) == throttle_time_ms


def test_average_is_over_what_was_recorded_lately() -> None:
    average = Average(1000, 2)
    assert math.isnan(average.measure(0))

    average.record(10, 0)
    average.record(30, 1500)

    assert average.measure(1500) == 20
    assert average.measure(2500) == 30
    assert math.isnan(average.measure(4000))
