"""A job's steps come one a turn until there is nothing left to do, and its owner's listener knows when that is."""

from __future__ import annotations

from broker.loop_job import LoopJob
from tests.support.clock import ManualClock


class Countdown:
    """Counts down to 0, a step a turn."""

    def __init__(self, count: int) -> None:
        self.clock = ManualClock()
        self.left = count
        self.told: list[bool] = []
        self.job = LoopJob(self.clock, self.step, lambda work, is_busy: self.told.append(is_busy))

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
    assert (countdown.told[0], countdown.told[-1]) == (True, False)


def test_no_step_comes_after_a_stop() -> None:
    countdown = Countdown(3)
    countdown.job.resume()

    countdown.job.stop()
    countdown.clock.advance(1)

    assert (countdown.left, countdown.told) == (3, [True, False])


def test_a_step_that_fails_ends_the_job() -> None:
    told: list[bool] = []
    clock = ManualClock()

    def fail() -> bool:
        raise OSError("no disk")

    job = LoopJob(clock, fail, lambda work, is_busy: told.append(is_busy))
    job.resume()
    try:
        clock.advance(1)
    except OSError:
        pass

    assert (told, job.is_waiting) == ([True, False], False)
