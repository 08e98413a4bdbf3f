"""Reads of data that is not in the page cache: a thread brings it in, then the read is tried again on the loop.

Otherwise a consumer of old segments, or a search by timestamp, would block the loop until the disk answers, and all other clients with it.
Nothing but the request is kept between two tries, because the log may have changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from broker.loop.blocking import RunBlocking
from broker.loop.deferred import Deferred
from storage.page_cache import ColdRead, not_waiting, waiting

TRIES_MAX = 32  # for one request. Then memory is so short that pages are evicted before they are used, and the read waits on the loop.


def read_in_turns(
    read: Callable[[], Any], run_blocking: RunBlocking | None, arrival: Deferred | None = None
) -> Generator[Deferred, bool, Any]:
    """Returns what `read()` returns. Yields a Deferred while a thread reads from the disk, so that other requests are served meanwhile.
    `arrival` is the Deferred of `bring_in`, if a first try has raised ColdRead already."""
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
            arrival = bring_in(missing, run_blocking)  # `missing` itself is not kept: its traceback holds this frame


def bring_in(missing: ColdRead, run_blocking: RunBlocking) -> Deferred:
    """A Deferred of whether the disk failed. If it did, the next try waits on the loop and raises the disk's error."""
    arrived = Deferred()
    run_blocking(missing.bring_in).add_done_callback(lambda done: arrived.complete(done.exception() is not None))
    return arrived
