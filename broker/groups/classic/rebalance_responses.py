"""RebalanceResponses: the responses to the waiting members of a classic group, of which a rebalance sends all at the same time.

The group has moved on before the first response is sent, and moves on while they are sent: a member may be asked to join again, or be
removed, before it knows its generation. A late response reflects the group when it was decided; the member learns of later changes by its
next request. No response is given up: a client that is not answered hangs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from broker.loop.job import LoopJob

if TYPE_CHECKING:
    from broker.groups.classic.classic_group import Answer
    from broker.loop.clock import Clock

RESPONSES_AT_ONCE = 100
"""More are sent in slices: each takes 20 to 50 µs with its encoding and the call that sends it, those of 10,000 members half a second."""

log = logging.getLogger("barnabas.groups")


class RebalanceResponses:
    """Of all shards of this broker. They outlive their shard: a member that was told to wait is told how that ended."""

    def __init__(self, clock: Clock) -> None:
        self._queue: deque[Iterator[Answer]] = deque()
        self._job = LoopJob(clock, self._send_queued)

    def send(self, answers: Iterator[Answer], count: int) -> None:
        """Send the `count` responses in their order: now if they are few. `answers` makes each when its turn comes."""
        if count <= RESPONSES_AT_ONCE:
            for answer in answers:
                _send(answer)
        else:
            self.send_later(answers)

    def send_later(self, answers: Iterator[Answer]) -> None:
        """The same for any number, from a later turn of the loop on."""
        self._queue.append(answers)
        self._job.resume()

    def flush(self) -> None:
        """Send all that are left now: the loop has no more turns for them."""
        self._job.stop()
        while self._queue:
            for answer in self._queue.popleft():
                _send(answer)

    def _send_queued(self) -> Generator[None, None, None]:
        while self._queue:
            for answer in self._queue[0]:
                _send(answer)
                yield
            self._queue.popleft()


def _send(answer: Answer) -> None:
    """An answer that fails is logged: the members behind it must not suffer. A member may have been answered already: the first of a
    group, if the group could not be stored."""
    reply, response = answer
    try:
        if not reply.is_done:
            reply.complete(response)
    except Exception:
        log.exception("an answer to a member of a group failed")
