"""RebalanceResponses: sends the responses to all waiting members of a classic group, in slices.

The group has changed its state before the first response is sent, and may change again meanwhile: a member may have to join again, or be
removed, before it knows its generation. A late response says what was decided at its rebalance; the member learns of later changes by its
next request. No response is dropped, because a client without a response hangs.
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
"""Responses that are sent at once; more are sent in slices. One takes 20 to 50 µs to encode and send, those of 10,000 members 0.5 s."""

log = logging.getLogger("barnabas.groups")


class RebalanceResponses:
    """The responses of all shards of this broker. They outlive their shard: every waiting member gets its response."""

    def __init__(self, clock: Clock) -> None:
        self._queue: deque[Iterator[Answer]] = deque()
        self._job = LoopJob(clock, self._send_queued)

    def send(self, answers: Iterator[Answer], count: int) -> None:
        """Send the `count` responses in order, at once if they are few. `answers` makes each one when it is sent."""
        if count <= RESPONSES_AT_ONCE:
            for answer in answers:
                _send(answer)
        else:
            self.send_later(answers)

    def send_later(self, answers: Iterator[Answer]) -> None:
        """The same in later turns of the loop, for any number."""
        self._queue.append(answers)
        self._job.resume()

    def flush(self) -> None:
        """Send all waiting responses now, because the loop ends."""
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
    """Send one response. A failure is logged, so that the members behind it get theirs. The first member of a group has an error already if
    the group could not be stored."""
    reply, response = answer
    try:
        if not reply.is_done:
            reply.complete(response)
    except Exception:
        log.exception("an answer to a member of a group failed")
