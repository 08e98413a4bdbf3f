"""Requests that look up what only the disk has: a thread brings it into the page cache, then the read is tried again on the loop.

A consumer of old segments, or a search by timestamp, would otherwise keep the loop waiting for the disk, and every other client with it.
Only the request is remembered between two tries, because what the first try saw may have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from broker.loop.blocking import RunBlocking
from broker.loop.deferred import Deferred
from storage.page_cache import ColdRead, not_waiting, waiting

TRIES_MAX = 32  # for one request; then it waits on the loop, because memory is so short that pages are evicted before they are used


def read_in_turns(
    read: Callable[[], Any], run_blocking: RunBlocking | None, arrival: Deferred | None = None
) -> Generator[Deferred, bool, Any]:
    """What `read()` returns, for a request that goes in turns: others are served while a thread brings something in. `arrival` is of
    `bring_in`, if a first try has raised ColdRead already."""
    tries, must_wait = 0, run_blocking is None
    while True:
        if arrival is not None:
            has_failed = yield arrival
            tries += 1
            must_wait = has_failed or tries >= TRIES_MAX
        try:
            with waiting() if must_wait else not_waiting:
                return read()
        except ColdRead as missing:
            assert run_blocking is not None, "a read that may wait for the disk raises no ColdRead"
            arrival = bring_in(missing, run_blocking)  # `missing` itself goes: its traceback holds this frame


def bring_in(missing: ColdRead, run_blocking: RunBlocking) -> Deferred:
    """A Deferred of whether the disk failed, so that the next try has to meet its error."""
    arrived = Deferred()
    run_blocking(missing.bring_in).add_done_callback(lambda done: arrived.complete(done.exception() is not None))
    return arrived
