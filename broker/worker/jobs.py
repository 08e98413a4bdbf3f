"""What a worker can compute, by name. A job's module is imported at its first use, in the process that runs it.

A job is a generator function `(arguments, buffers)`: `arguments` is small and was pickled, `buffers` are the bytes it computes on, which
it may read until it ends. It yields where it may be interrupted, about each 0.2 ms, and returns `(value, buffers)` in the same manner.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from broker.loop.deferred import Deferred

Buffer = bytes | bytearray | memoryview

NICENESS = 5
"""Of a worker beside the broker: the loop comes first where cores are scarce, and one request's checks may take seconds."""
BACKGROUND_NICENESS = 10
"""Of one for whose jobs no request waits."""

CHECK_BATCHES = "storage.batch_checks:check_batches"


class Outcome(NamedTuple):
    """What a job returned."""

    value: Any
    buffers: Sequence[Buffer]
    cpu_ns: int
    """What it took, with the copying of the buffers."""


Steps = Generator[None, None, tuple[Any, Sequence[Buffer]]]


def find_job(name: str) -> Callable[[Any, Sequence[memoryview]], Steps]:
    """The function of the job `name`, "module:function"."""
    module, _, function = name.partition(":")
    found: Callable[[Any, Sequence[memoryview]], Steps] = getattr(import_module(module), function)
    return found


class Worker(Protocol):
    """Runs jobs somewhere else than in the loop's turn."""

    def submit(self, job: str, arguments: Any, buffers: Sequence[memoryview], *, is_short: bool) -> Deferred:
        """A Deferred of the Outcome, or of an exception. `buffers` must stay valid and as they are until then; abandoned, it withdraws
        the job. `is_short` is a guess: about 10 ms or less."""
        ...

    async def close(self) -> None:
        """End it; what waits is not answered any more."""
        ...
