"""MemberAnswers: what the waiting members of a classic group are told, all of them for the same reason; many in slices of SLICE_US, one in
each turn of the loop.

The group has moved on before the first of them is told, and moves on while they are told: a member may be asked to join again, or be
removed, before it knows its generation. What it is told then is what held when it was decided, like an answer that is still on its way
through the network, and its next request gets the group's word. No answer is given up: a client that is not answered hangs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.loop.loop_job import LoopJob

if TYPE_CHECKING:
    from broker.groups.classic.classic_group import Answer
    from broker.loop.clock import Clock

SLICE_US = 2_000
"""Microseconds of answers in one turn of the loop; each takes 20 to 50 µs with its encoding and the call that sends it."""

ANSWERS_AT_ONCE = 20
"""As many are given at once."""

log = logging.getLogger("barnabas.groups")


class MemberAnswers:
    """Of all shards of this broker. They outlive their shard: who was told to wait is told how that ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: deque[Iterator[Answer]] = deque()
        self._job = LoopJob(clock, self._step)

    def send(self, answers: Iterator[Answer], count: int) -> None:
        """Give the `count` answers in their order, each of which `answers` makes when its turn comes: now if they are few."""
        if count <= ANSWERS_AT_ONCE:
            for answer in answers:
                _give(answer)
        else:
            self._queue.append(answers)
            self._job.resume()

    def send_later(self, answers: Iterator[Answer]) -> None:
        """The same for any number, from a later turn of the loop on."""
        self._queue.append(answers)
        self._job.resume()

    def flush(self) -> None:
        """Give all that are left: the loop has no more turns for them."""
        self._job.stop()
        while self._queue:
            for answer in self._queue.popleft():
                _give(answer)

    def _step(self) -> bool:
        end_us = self._clock.monotonic_us() + SLICE_US
        while self._queue:
            answer = next(self._queue[0], None)
            if answer is None:
                self._queue.popleft()
                continue
            _give(answer)
            if self._clock.monotonic_us() >= end_us:
                break
        return bool(self._queue)


def _give(answer: Answer) -> None:
    """One that fails is logged: the members behind it must not suffer. One member may know already: the first of a group, which was told
    that the group could not be stored."""
    reply, response = answer
    try:
        if not reply.is_done:
            reply.complete(response)
    except Exception:
        log.exception("an answer to a member of a group failed")
