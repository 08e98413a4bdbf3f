"""Long computations of groups: one after another, a slice of time in each turn of the loop."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from broker.groups.consumer.jobs import SLICE_US, GroupJobs
from tests.support.clock import ManualClock


class Working(ManualClock):
    """Microseconds pass with each piece, too few for a timer."""

    def __init__(self, piece_us: int) -> None:
        super().__init__()
        self.piece_us = piece_us
        self.worked_us = 0

    def monotonic_us(self) -> int:
        return super().monotonic_us() + self.worked_us


class Bench:
    def __init__(self, piece_us: int = SLICE_US) -> None:
        self.clock = Working(piece_us)
        self.jobs = GroupJobs(self.clock)
        self.steps: list[str] = []

    def start(self, owner: object, group: str, pieces: int) -> None:
        self.jobs.start((owner, "work", group), self._work(group, pieces), lambda made: self.steps.append(made))

    def take_turn(self) -> None:
        """A step of the job that runs; the next one comes in the next turn."""
        (timer,) = self.clock.pending_timers
        timer.cancel()
        timer.fire()

    def _work(self, group: str, pieces: int) -> Generator[None, None, str]:
        for piece in range(pieces):
            self.steps.append(f"{group} {piece}")
            self.clock.worked_us += self.clock.piece_us
            yield
        return f"{group} done"


def test_jobs_are_done_one_after_another_in_later_turns():
    bench = Bench()

    bench.start("x", "g", 2)
    bench.start("x", "h", 1)
    assert bench.steps == []
    assert bench.jobs.is_running(("x", "work", "h"))
    bench.take_turn()
    assert bench.steps == ["g 0"]
    bench.clock.advance(0)

    assert bench.steps == ["g 0", "g 1", "g done", "h 0", "h done"]
    assert not bench.jobs.is_running(("x", "work", "h"))


def test_a_turn_has_as_many_pieces_as_a_slice_has_time_for():
    bench = Bench(piece_us=SLICE_US // 3 + 1)

    bench.start("x", "g", 4)
    bench.start("x", "h", 2)
    bench.take_turn()
    assert bench.steps == ["g 0", "g 1", "g 2"]
    bench.take_turn()

    assert bench.steps == ["g 0", "g 1", "g 2", "g 3", "g done", "h 0", "h 1"]


def test_an_owner_s_jobs_end_where_they_are():
    bench = Bench()
    bench.start("x", "g", 3)
    bench.start("y", "h", 1)
    bench.take_turn()

    bench.jobs.cancel("x")
    bench.clock.advance(0)

    assert bench.steps == ["g 0", "h 0", "h done"]


def test_job_that_fails_is_logged_and_the_next_one_begins(caplog: pytest.LogCaptureFixture):
    bench = Bench()

    def fails() -> Generator[None, None, str]:
        yield
        raise ValueError("a bug")

    bench.jobs.start(("x", "work", "broken"), fails(), bench.steps.append)
    bench.start("x", "g", 0)
    bench.clock.advance(0)

    assert bench.steps == ["g done"]
    assert "a job of group 'broken' failed" in caplog.text
