"""The worker's two lines: who waits for whom."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from broker.worker.lines import SHORT_SLICES_MAX, SLICE_NS, Job, Lines

LONG = 3 * SHORT_SLICES_MAX
SHORT = 3


class Room:
    """Lines whose jobs take exactly one slice a step; `ended` names those that are done, in order."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.lines = Lines(lambda: self.now_ns)
        self.ended: list[Any] = []
        self.taken_ns: dict[str, int] = {}

    def add(self, name: str, slices: int, *, is_short: bool, error: Exception | None = None) -> Job:
        def steps() -> Generator[None, None, str]:
            for _ in range(slices):
                self.now_ns += SLICE_NS
                yield
            if error is not None:
                raise error
            return name

        def done(outcome: Any, taken_ns: int) -> None:
            self.ended.append(outcome)
            self.taken_ns[name] = taken_ns

        job = Job(steps(), done, is_short=is_short)
        self.lines.add(job)
        return job

    def run_until(self, name: str) -> int:
        """How many slices it took."""
        slices = 0
        while name not in self.ended:
            self.lines.run_slice()
            slices += 1
        return slices


def test_a_short_job_does_not_wait_for_long_ones() -> None:
    room = Room()
    for number in range(20):
        room.add(f"long {number}", LONG, is_short=False)
    room.add("short", SHORT, is_short=True)

    assert room.run_until("short") <= 2 * (SHORT + 1)
    assert room.ended == ["short"]


def test_a_job_is_told_its_own_time() -> None:
    room = Room()
    room.add("long", LONG, is_short=False)
    room.add("short", SHORT, is_short=True)
    room.run_until("long")

    assert room.taken_ns == {"long": LONG * SLICE_NS, "short": SHORT * SLICE_NS}


def test_long_jobs_are_not_starved_by_short_ones() -> None:
    room = Room()
    room.add("long", LONG, is_short=False)
    for number in range(100):
        room.add(f"short {number}", SHORT, is_short=True)

    assert room.run_until("long") <= 2 * (LONG + 1)


def test_long_jobs_take_turns() -> None:
    room = Room()
    room.add("longest", 4 * LONG, is_short=False)
    room.add("long", LONG, is_short=False)

    room.run_until("long")

    assert room.ended == ["long"]


def test_a_job_that_looked_short_goes_on_in_the_long_line() -> None:
    room = Room()
    for number in range(3):
        room.add(f"liar {number}", LONG, is_short=True)
    for _ in range(2 * 3 * SHORT_SLICES_MAX):
        room.lines.run_slice()
    room.add("short", SHORT, is_short=True)

    assert room.run_until("short") <= 2 * (SHORT + 1)
    assert room.ended == ["short"]


def test_a_job_that_is_withdrawn_takes_no_more_turns() -> None:
    room = Room()
    gone = room.add("gone", LONG, is_short=False)
    room.lines.run_slice()

    room.lines.remove(gone)
    room.lines.run_slice()

    assert (len(room.lines), room.now_ns) == (0, SLICE_NS)


def test_the_exception_that_ends_a_job_is_its_outcome_and_the_line_goes_on() -> None:
    room = Room()
    error = MemoryError()
    room.add("broken", SHORT, is_short=True, error=error)
    room.add("next", SHORT, is_short=True)

    room.run_until("next")

    assert room.ended == [error, "next"]
