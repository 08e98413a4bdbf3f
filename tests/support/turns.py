"""What a handler's outcome comes to, for tests without dispatch: a long request's generator is run to its end."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

from broker.loop.turns import Turns


def finished(outcome: Any) -> Any:
    """The answer, or a Deferred that still waits for something else than its turn."""
    return run(outcome)[0] if isinstance(outcome, GeneratorType) else outcome


def started(outcome: Any) -> Any:
    """The answer, or a Deferred of it: a long request goes on whenever what it waits for has come."""
    if not isinstance(outcome, GeneratorType):
        return outcome
    return Turns(lambda callback: callback(), monotonic_us=lambda: 0).start(outcome)


def run(work: GeneratorType[None, None, Any]) -> tuple[Any, int]:
    """What the work returns, and in how many pieces it was done."""
    pieces_count = 1
    while True:
        try:
            next(work)
        except StopIteration as e:
            return e.value, pieces_count
        pieces_count += 1
