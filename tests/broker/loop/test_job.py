"""A job goes on for a slice in each turn of the loop until there is nothing left to do."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from broker.loop.job import LoopJob
from broker.loop.turns import SLICE_US
from tests.support.clock import ManualClock


class Countdown:
    """Counts down to 0, in steps of `step_ms`."""

    def __init__(self, count: int, step_ms: float = 0) -> None:
        self.clock = ManualClock()
        self.step_ms = step_ms
        self.count = self.left = count
        self.passes = 0
        self.is_closed = False
        self.job = LoopJob(self.clock, self.steps)

    def steps(self) -> Generator[None, None, None]:
        self.passes += 1
        self.left = self.count
        try:
            while self.left:
                self.left -= 1
                self.clock.stall(self.step_ms)
                yield
        except GeneratorExit:
            self.is_closed = True
            raise


def test_steps_come_until_there_is_no_more_to_do() -> None:
    countdown = Countdown(3)

    countdown.job.resume()
    countdown.job.resume()
    before = countdown.left
    countdown.clock.advance(1_000)

    assert (before, countdown.left, countdown.passes, countdown.job.is_waiting) == (3, 0, 1, False)


def test_a_slice_ends_by_the_clock() -> None:
    countdown = Countdown(100, step_ms=1.5)

    countdown.job.resume()
    countdown.clock.advance(0)

    assert countdown.left == 100 - -(-SLICE_US // 1_500)
    assert countdown.job.is_waiting


def test_a_job_that_is_resumed_while_it_runs_begins_again_afterwards() -> None:
    countdown = Countdown(100, step_ms=1.5)

    countdown.job.resume()
    countdown.clock.advance(0)
    countdown.job.resume()
    countdown.clock.advance(1_000)

    assert (countdown.passes, countdown.left, countdown.job.is_waiting) == (2, 0, False)


def test_no_step_comes_after_a_stop_and_the_generator_is_closed() -> None:
    countdown = Countdown(100, step_ms=1.5)
    countdown.job.resume()
    countdown.clock.advance(0)
    left = countdown.left

    countdown.job.stop()
    countdown.clock.advance(1_000)

    assert (countdown.left, countdown.is_closed, countdown.job.is_waiting) == (left, True, False)


def test_a_job_may_stop_itself() -> None:
    clock = ManualClock()
    steps_done: list[int] = []

    def steps() -> Generator[None, None, None]:
        for step in range(3):
            steps_done.append(step)
            if step == 1:
                job.stop()
            yield

    job = LoopJob(clock, steps)
    job.resume()
    clock.advance(1_000)

    assert (steps_done, job.is_waiting) == ([0, 1], False)


def test_a_step_that_fails_ends_the_job() -> None:
    clock = ManualClock()

    def fail() -> Generator[None, None, None]:
        raise OSError("no disk")
        yield

    job = LoopJob(clock, fail)
    job.resume()
    with pytest.raises(OSError, match="no disk"):
        clock.advance(1_000)

    assert not job.is_waiting
