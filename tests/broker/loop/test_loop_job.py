"""A job's steps come one a turn until there is nothing left to do."""

from __future__ import annotations

from broker.loop.loop_job import LoopJob
from tests.support.clock import ManualClock


class Countdown:
    """Counts down to 0, a step a turn."""

    def __init__(self, count: int) -> None:
        self.clock = ManualClock()
        self.left = count
        self.job = LoopJob(self.clock, self.step)

    def step(self) -> bool:
        self.left -= 1
        return self.left > 0


def test_steps_come_until_there_is_no_more_to_do() -> None:
    countdown = Countdown(3)

    countdown.job.resume()
    countdown.job.resume()
    before = countdown.left
    countdown.clock.advance(1)

    assert (before, countdown.left, countdown.job.is_waiting) == (3, 0, False)


def test_no_step_comes_after_a_stop() -> None:
    countdown = Countdown(3)
    countdown.job.resume()

    countdown.job.stop()
    countdown.clock.advance(1)

    assert (countdown.left, countdown.job.is_waiting) == (3, False)


def test_a_step_that_fails_ends_the_job() -> None:
    clock = ManualClock()

    def fail() -> bool:
        raise OSError("no disk")

    job = LoopJob(clock, fail)
    job.resume()
    try:
        clock.advance(1)
    except OSError:
        pass

    assert not job.is_waiting
