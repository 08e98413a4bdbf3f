"""Transforms responses that may still be Deferreds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from broker.loop.deferred import Deferred


def mapped(reply: Deferred, change: Callable[[Any], Any]) -> Deferred:
    """A Deferred of `change(response)`. An exception passes unchanged."""
    changed = Deferred()

    def answered(value: Any) -> None:
        if isinstance(value, Exception):
            changed.complete(value)
        else:
            changed.resolve(change, value)

    reply.when_done(answered)
    return changed


def gathered(outcomes: list[Any], combine: Callable[[list[Any]], Any]) -> Any:
    """`combine(outcomes)`, or a Deferred of it while some outcomes are Deferreds. Each Deferred's value, or exception, replaces it in
    `outcomes`."""
    waiting = {place: outcome for place, outcome in enumerate(outcomes) if isinstance(outcome, Deferred)}
    if not waiting:
        return combine(outcomes)
    whole = Deferred()

    def answered(place: int, outcome: Any) -> None:
        outcomes[place] = outcome
        del waiting[place]
        if not waiting:
            whole.resolve(combine, outcomes)

    for place, reply in list(waiting.items()):
        reply.when_done(partial(answered, place))
    return whole
