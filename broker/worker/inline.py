"""A Worker without a process: its jobs run on the loop, a slice each turn. For the simulated world, and where a process costs too much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker.loop.deferred import Deferred
from broker.worker.jobs import Outcome, find_job
from broker.worker.lines import Job, Lines


class InlineWorker:
    """Satisfies Worker."""

    def __init__(self, call_soon: Callable[..., Any], lines: Lines) -> None:
        self._call_soon = call_soon
        self._lines = lines
        self._is_due = False

    def submit(self, job: str, arguments: Any, buffers: Sequence[memoryview], *, is_short: bool) -> Deferred:
        answer = Deferred()

        def done(outcome: Any, taken_ns: int) -> None:
            answer.complete(outcome if isinstance(outcome, Exception) else Outcome(outcome[0], outcome[1], taken_ns))

        queued = Job(find_job(job)(arguments, buffers), done, is_short=is_short)
        answer.on_abandon = lambda: self._lines.remove(queued)
        self._lines.add(queued)
        self._run_soon()
        return answer

    async def close(self) -> None:
        """What waits is not answered any more."""
        self._is_due = True

    def _run_soon(self) -> None:
        if self._lines and not self._is_due:
            self._is_due = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._is_due = False
        self._lines.run_slice()
        self._run_soon()
