"""Lines: the worker's queue of jobs. It has two lines, and runs one slice of a job at a time.

A job is a generator that yields where it may be interrupted. Short jobs have a line of their own, so that none waits for long ones; one
that is not done after SHORT_SLICES_MAX slices moves to the long line. Within a line the jobs take turns, and the lines take turns.
Pure: `SLICE_NS` of a job are measured by the clock that is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from time import perf_counter_ns
from typing import Any

SLICE_NS = 1_000_000
SHORT_SLICES_MAX = 16


class Job:
    """One job in a line. `on_done` gets what the generator returned, or the exception that ended it, and how many ns its slices took."""

    __slots__ = ("on_done", "slices_left", "steps", "taken_ns")

    def __init__(self, steps: Generator[None, None, Any], on_done: Callable[[Any, int], None], *, is_short: bool) -> None:
        self.steps = steps
        self.on_done = on_done
        self.taken_ns = 0
        self.slices_left = SHORT_SLICES_MAX if is_short else 0


class Lines:
    """See the module's docstring."""

    def __init__(self, now_ns: Callable[[], int] = perf_counter_ns) -> None:
        self._now_ns = now_ns
        self._short: deque[Job] = deque()
        self._long: deque[Job] = deque()
        self._is_long_next = False

    def __len__(self) -> int:
        return len(self._short) + len(self._long)

    def add(self, job: Job) -> None:
        (self._short if job.slices_left > 0 else self._long).append(job)

    def remove(self, job: Job) -> None:
        """Nobody waits for it any more."""
        for line in (self._short, self._long):
            if job in line:
                line.remove(job)
                job.steps.close()

    def run_slice(self) -> None:
        """A slice of the job whose turn it is, if there is any."""
        line = self._long if self._long and (self._is_long_next or not self._short) else self._short
        if not line:
            return
        self._is_long_next = line is self._short
        job = line.popleft()
        start_ns = self._now_ns()
        end_ns = start_ns + SLICE_NS
        try:
            while True:
                next(job.steps)
                if self._now_ns() >= end_ns:
                    break
        except StopIteration as end:
            job.on_done(end.value, job.taken_ns + self._now_ns() - start_ns)
        except Exception as error:
            job.on_done(error, job.taken_ns + self._now_ns() - start_ns)
        else:
            job.taken_ns += self._now_ns() - start_ns
            job.slices_left -= 1
            self.add(job)
