"""A Worker that is made for the first job: most brokers never need one, and it takes 10 ms of the start and half a megabyte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker.loop.deferred import Deferred
from broker.worker.jobs import Worker


class WorkerOnDemand:
    """Satisfies Worker. `make` is called once, at the first job."""

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._make = make
        self._worker: Worker | None = None

    def submit(self, job: str, arguments: Any, buffers: Sequence[memoryview], *, is_short: bool) -> Deferred:
        if self._worker is None:
            self._worker = self._make()
        return self._worker.submit(job, arguments, buffers, is_short=is_short)

    async def close(self) -> None:
        if self._worker is not None:
            await self._worker.close()
