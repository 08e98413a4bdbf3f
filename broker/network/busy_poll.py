"""Polls briefly for the next request before the loop goes to sleep.

A client that sends one request at a time sends the next one tens of microseconds after its answer. Sleeping and waking in between costs
both sides more than the request does: on two cores of a virtual machine 45 µs of a round trip of 93 µs, and 10 µs of the broker's CPU.
While a call is due, libuv polls its descriptors without sleeping. So polling is a call that schedules itself again.

Polling must be worth its CPU: each time that it finds nothing, the number of reads without polling doubles. If requests do not follow right
after answers, or if the client needs this core to continue, there is soon only one polling in sixty-four reads. A read of another
connection counts as nothing: several clients keep the loop awake by themselves, and need the cores that polling would take. Spark's own
source, with two tasks on two cores, reads a sixth faster so.
"""

from __future__ import annotations

import asyncio

from broker.loop.clock import Clock

SKIPPED_MAX = 63  # reads without polling after polling found nothing


class BusyPoll:
    """One for the loop. A connection calls it after a read when all its requests are answered: a client with a waiting request sends
    nothing."""

    __slots__ = (
        "_deadline_us",
        "_duration_us",
        "_is_polling",
        "_is_shared",
        "_loop",
        "_monotonic_ns",
        "_reader",
        "_reads",
        "_reads_seen",
        "_skipped",
        "_to_skip",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, duration_us: int) -> None:
        """`duration_us`: how long to wait for the next read; 0 never waits."""
        self._loop = loop
        self._monotonic_ns = clock.monotonic_ns
        self._duration_us = duration_us
        self._is_polling = False
        self._reader: object = None  # whose next read is waited for
        self._is_shared = False  # another has read meanwhile
        self._deadline_us = 0
        self._reads = 0
        self._reads_seen = 0
        self._skipped = 0  # reads without polling since polling found nothing
        self._to_skip = 0  # how many of them are left

    def read_answered(self, reader: object) -> None:
        """Begin to poll for the next read of `reader`."""
        self._reads += 1
        if self._is_polling:
            self._is_shared |= reader is not self._reader
            return
        if self._to_skip:
            self._to_skip -= 1
        elif self._duration_us:
            self._is_polling = True
            self._is_shared = False
            self._reader = reader
            self._begin()
            self._loop.call_soon(self._poll)

    def _begin(self) -> None:
        self._reads_seen = self._reads
        self._deadline_us = self._monotonic_ns() // 1_000 + self._duration_us

    def _poll(self) -> None:
        if self._reads != self._reads_seen and not self._is_shared:
            self._skipped = 0
            self._begin()
        elif self._is_shared or self._monotonic_ns() // 1_000 >= self._deadline_us:
            self._is_polling = False
            self._reader = None
            self._skipped = self._to_skip = min(2 * self._skipped + 1, SKIPPED_MAX)
            return
        self._loop.call_soon(self._poll)
