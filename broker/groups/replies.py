"""Answers that are still to come and need a last touch for the request's version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.deferred import Deferred


def mapped(reply: Deferred, change: Callable[[Any], Any]) -> Deferred:
    """A Deferred of `change(response)`; an exception passes as it is."""
    changed = Deferred()

    def answered(value: Any) -> None:
        if isinstance(value, Exception):
            changed.complete(value)
        else:
            changed.resolve(change, value)

    reply.when_done(answered)
    return changed
