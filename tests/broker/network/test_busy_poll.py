"""How long the loop is kept awake after a read, and when it is not worth it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from broker.loop.deferred import Deferred
from broker.network.busy_poll import SKIPPED_MAX, BusyPoll
from broker.network.context import ConnectionFacts
from tests.broker.network.harness import echo, framed, run, serving
from tests.support.clock import ManualClock

DURATION_US = 50
CLIENT = object()


class Loop:
    """The calls that are due: while there are any, a loop does not sleep."""

    def __init__(self) -> None:
        self.due: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    @property
    def is_awake(self) -> bool:
        return bool(self.due)

    def turn(self) -> None:
        for _ in range(len(self.due)):
            self.due.popleft()()


class Harness:
    def __init__(self, duration_us: int = DURATION_US) -> None:
        self.loop: Any = Loop()
        self.clock = ManualClock()
        self.poll = BusyPoll(self.loop, self.clock, duration_us)

    def pass_us(self, microseconds: float) -> None:
        self.clock.advance(microseconds / 1000)
        self.loop.turn()

    def wait_in_vain(self) -> None:
        self.poll.read_answered(CLIENT)
        assert self.loop.is_awake
        self.pass_us(DURATION_US)

    def reads_until_awake(self) -> int:
        """How many reads are left out before one is waited after."""
        for count in range(2 * SKIPPED_MAX):
            self.poll.read_answered(CLIENT)
            if self.loop.is_awake:
                return count
        raise AssertionError("it never waits again")


def test_loop_stays_awake_for_the_duration_after_a_read() -> None:
    harness = Harness()

    harness.poll.read_answered(CLIENT)
    harness.pass_us(DURATION_US - 1)
    was_awake = harness.loop.is_awake
    harness.pass_us(1)

    assert (was_awake, harness.loop.is_awake) == (True, False)


def test_a_read_of_another_connection_ends_the_wait_and_counts_as_in_vain() -> None:
    harness = Harness()
    harness.poll.read_answered(CLIENT)
    harness.pass_us(DURATION_US - 1)

    harness.poll.read_answered(object())
    harness.pass_us(0)

    assert not harness.loop.is_awake
    assert harness.reads_until_awake() == 1


def test_each_read_in_time_begins_the_wait_anew() -> None:
    harness = Harness()
    harness.poll.read_answered(CLIENT)

    for _ in range(10):
        harness.pass_us(DURATION_US - 1)
        assert harness.loop.is_awake
        harness.poll.read_answered(CLIENT)
        harness.pass_us(0)

    assert len(harness.loop.due) == 1


@pytest.mark.parametrize(("in_vain", "left_out"), [(1, 1), (2, 3), (3, 7), (6, 63), (7, 63)])
def test_waits_in_vain_make_the_next_ones_rare(in_vain: int, left_out: int) -> None:
    harness = Harness()
    harness.wait_in_vain()
    for _ in range(in_vain - 1):
        harness.reads_until_awake()
        harness.pass_us(DURATION_US)

    assert harness.reads_until_awake() == left_out


def test_a_read_in_time_makes_waiting_usual_again() -> None:
    harness = Harness()
    for _ in range(4):
        harness.reads_until_awake()
        harness.pass_us(DURATION_US)
    harness.reads_until_awake()
    harness.poll.read_answered(CLIENT)
    harness.pass_us(1)
    harness.pass_us(DURATION_US)

    assert harness.reads_until_awake() == 1


def test_duration_of_zero_never_keeps_the_loop_awake() -> None:
    harness = Harness(0)

    harness.poll.read_answered(CLIENT)

    assert not harness.loop.is_awake


def test_only_a_read_whose_requests_are_answered_is_worth_waiting_after() -> None:
    """A request that waits, a follower's Fetch or a Produce with acks=all, keeps its client from sending the next one."""

    class NotedPoll(BusyPoll):
        reads = 0

        def read_answered(self, reader: object) -> None:
            NotedPoll.reads += 1

    seen: list[bytes] = []

    def answer_or_park(frame: memoryview, facts: ConnectionFacts) -> Any:
        seen.append(bytes(frame))
        return Deferred() if seen[-1] == b"parked" else echo(frame, facts)

    async def test() -> None:
        async with serving(answer_or_park) as harness:
            harness.registry.busy_poll = NotedPoll(asyncio.get_running_loop(), harness.clock, DURATION_US)
            reader, writer = await harness.connect()
            writer.write(framed(b"answered"))
            await reader.readexactly(len(framed(b"answered")))
            assert NotedPoll.reads == 1

            writer.write(framed(b"parked"))
            while seen[-1] != b"parked":
                await asyncio.sleep(0)
            assert NotedPoll.reads == 1
            writer.close()

    run(test)
