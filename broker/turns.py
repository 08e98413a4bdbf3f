"""Requests that take long go in turns, so that no client holds the loop.

A handler whose request can be large returns a generator. It yields wherever others may be served, and returns what another handler
would have returned. Pieces between two yields take well under a millisecond. After a yield everything may have changed: read again.

All long requests share one queue, and each turn of the loop gives SLICE_US to the one that has waited longest. A connection has one
such request at a time, so the queue is fair by connection, and a hundred of them hold the loop no longer than one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from broker.deferred import Deferred

SLICE_US = 2_000
"""Microseconds of work before the loop serves its connections again; a piece that has begun is finished first."""

Work = Generator[None, None, Any]


class Turns:
    """The queue. `call_soon` is the loop's; `monotonic_us` tells how long a slice has lasted."""

    __slots__ = ("_call_soon", "_is_scheduled", "_monotonic_us", "_queue")

    def __init__(self, call_soon: Callable[..., Any], monotonic_us: Callable[[], int]) -> None:
        self._call_soon = call_soon
        self._monotonic_us = monotonic_us
        self._queue: dict[Deferred, Work] = {}  # in the order of their turns
        self._is_scheduled = False

    def __len__(self) -> int:
        """Works that are not finished."""
        return len(self._queue)

    def start(self, work: Work) -> Deferred:
        """A Deferred of what `work` returns or raises, complete already if nobody else waits and one slice was enough.

        An abandoned Deferred ends the work where it stands: GeneratorExit is raised at its yield."""
        answer = Deferred()
        answer.on_abandon = lambda: self._drop(answer)
        if self._queue or not self._run_slice(answer, work):
            self._queue[answer] = work
            self._schedule()
        return answer

    def close(self) -> None:
        """End every work where it stands; nobody is answered."""
        for answer in list(self._queue):
            self._drop(answer)

    def _drop(self, answer: Deferred) -> None:
        work = self._queue.pop(answer, None)
        if work is not None:
            work.close()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_scheduled = False
        if not self._queue:
            return
        answer = next(iter(self._queue))
        work = self._queue.pop(answer)
        if not self._run_slice(answer, work):
            self._queue[answer] = work
        if self._queue:
            self._schedule()

    def _run_slice(self, answer: Deferred, work: Work) -> bool:
        """Whether the work has ended; `answer` is complete then."""
        end_us = self._monotonic_us() + SLICE_US
        try:
            while True:
                next(work)
                if self._monotonic_us() >= end_us:
                    return False
        except StopIteration as e:
            outcome = e.value
        except Exception as e:
            outcome = e
        answer.on_abandon = None
        answer.follow(outcome)
        return True
