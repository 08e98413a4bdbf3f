"""A Worker by hand: real jobs, which run when the test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from broker.loop.deferred import Deferred
from broker.worker.inline import InlineWorker
from broker.worker.lines import Lines


class ManualWorker:
    """Satisfies Worker."""

    def __init__(self) -> None:
        self._turns: deque[Callable[[], object]] = deque()
        self._jobs: list[Deferred] = []
        self._inline = InlineWorker(self._turns.append, Lines())

    def submit(self, job: str, arguments: Any, buffers: Sequence[memoryview], *, is_short: bool) -> Deferred:
        self._jobs.append(self._inline.submit(job, arguments, buffers, is_short=is_short))
        return self._jobs[-1]

    def run(self) -> None:
        """Run everything to its end."""
        while self._turns:
            self._turns.popleft()()
        self._jobs.clear()

    def fail(self, error: Exception) -> None:
        """What was submitted ends with `error`."""
        self._turns.clear()
        self._inline = InlineWorker(self._turns.append, Lines())
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job.complete(error)
