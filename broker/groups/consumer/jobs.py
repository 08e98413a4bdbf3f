"""GroupJobs: what KIP-848 groups compute for longer than a request may, one job after another, for SLICE_US in each turn of the loop.

A job is a generator that yields between pieces of well under a millisecond. A busy loop has turns of tens of milliseconds: a large group
would wait for hundreds of them if each did one piece. Groups change meanwhile: it works on what it was given at its
begin, and `done` looks what still holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from broker.loop.loop_job import LoopJob

if TYPE_CHECKING:
    from broker.loop.clock import Clock

SLICE_US = 2_000
"""Microseconds of work in one turn of the loop; a piece that has begun is finished first."""

log = logging.getLogger("barnabas.groups")

Made = TypeVar("Made")

JobKey = tuple[object, str, str]
"""Whose it is, what it is, and of which group."""


class _Job(NamedTuple):
    work: Generator[None, None, Any]
    done: Callable[[Any], None]


class GroupJobs:
    """Of all shards of this broker."""

    def __init__(self, clock: Clock) -> None:
        self._jobs: dict[JobKey, _Job] = {}  # the first one runs
        self._clock = clock
        self._loop_job = LoopJob(clock, self._step)

    def start(self, key: JobKey, work: Generator[None, None, Made], done: Callable[[Made], None]) -> None:
        """Begin the job in a later turn of the loop, and call `done` with what it returns. One that fails is logged."""
        assert key not in self._jobs, "one at a time: the caller asks is_running"
        self._jobs[key] = _Job(work, done)
        self._loop_job.resume()

    def is_running(self, key: JobKey) -> bool:
        return key in self._jobs

    def cancel(self, owner: object) -> None:
        """All of the owner's end where they are."""
        for key in [key for key in self._jobs if key[0] is owner]:
            work = self._jobs.pop(key).work
            if not (isinstance(work, GeneratorType) and work.gi_running):  # else it wrote what cost its owner the shard, and writes no more
                work.close()
        if not self._jobs:
            self._loop_job.stop()

    def _step(self) -> bool:
        end_us = self._clock.monotonic_us() + SLICE_US
        while self._jobs:
            self._do_piece()
            if self._clock.monotonic_us() >= end_us:
                break
        return bool(self._jobs)

    def _do_piece(self) -> None:
        key, job = next(iter(self._jobs.items()))
        try:
            next(job.work)
        except StopIteration as e:
            if self._jobs.pop(key, None) is not None:
                job.done(e.value)
        except Exception:
            self._jobs.pop(key, None)
            log.exception("a job of group %a failed", key[2])
