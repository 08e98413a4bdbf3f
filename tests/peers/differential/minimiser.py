"""Makes a failing list of steps short: drops what it fails without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

S = TypeVar("S")

ATTEMPTS_MAX = 300


def minimised(steps: Sequence[S], is_failing: Callable[[Sequence[S]], bool], attempts_max: int = ATTEMPTS_MAX) -> list[S]:
    """A part of `steps`, in their order, that fails still; with attempts enough, none of it can be dropped alone.

    Drops ever smaller runs, from the end, for what comes early is what the rest builds upon. `steps` themselves are taken to fail."""
    kept = list(steps)
    size = max(1, len(kept) // 2)
    attempts = 0
    while True:
        has_dropped = False
        end = len(kept)
        while end > 0 and attempts < attempts_max:
            start = max(0, end - size)
            shorter = kept[:start] + kept[end:]
            attempts += 1
            if shorter and is_failing(shorter):
                kept, has_dropped = shorter, True
            end = start
        if attempts >= attempts_max or (size == 1 and not has_dropped):
            return kept
        size = max(1, size // 2)
