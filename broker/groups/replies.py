"""Answers that are still to come and need a last touch for the request's version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.deferred import Deferred


def mapped(reply: Deferred, change: Callable[[Any], Any]) -> Deferred:
    """A Deferred of `change(response)`; an exception passes as it is."""
    changed = Deferred()
    reply.when_done(lambda value: changed.complete(value if isinstance(value, Exception) else change(value)))
    return changed
