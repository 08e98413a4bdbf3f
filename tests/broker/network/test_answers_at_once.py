"""When an answer that a request waited for leaves: at once where others wait for what its peer does next, else with those behind it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from broker.loop.deferred import Deferred
from broker.network.context import ConnectionFacts
from tests.broker.network.harness import framed, run, serving

PRODUCE = framed(b"\x00\x00")


class Parking:
    """A handler whose requests wait until the test answers them."""

    def __init__(self, *, sends_at_once: bool) -> None:
        self.parked: list[Deferred] = []
        self._sends_at_once = sends_at_once

    def __call__(self, frame: memoryview, facts: ConnectionFacts) -> Any:
        facts.sends_at_once = self._sends_at_once
        self.parked.append(Deferred())
        return self.parked[-1]

    async def take(self, count: int) -> None:
        while len(self.parked) < count:
            await asyncio.sleep(0)


def _received(client: socket.socket) -> bytes:
    """What has arrived by now: loopback delivers within `send`."""
    try:
        return client.recv(100, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""


@pytest.mark.parametrize(("sends_at_once", "arrived"), [(True, b"answer"), (False, b"")])
def test_an_answer_that_others_wait_for_leaves_with_its_completion(sends_at_once: bool, arrived: bytes) -> None:
    async def test() -> None:
        handle = Parking(sends_at_once=sends_at_once)
        async with serving(handle) as harness:
            with socket.create_connection(("127.0.0.1", harness.listener.port)) as client:
                client.sendall(PRODUCE)
                await handle.take(1)

                handle.parked[0].complete([b"answer"])

                assert _received(client) == arrived
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert arrived or _received(client) == b"answer"

    run(test)


def test_answers_to_pipelined_requests_leave_together() -> None:
    """One call for each of sixty-four would cost more than all of their bytes."""

    async def test() -> None:
        handle = Parking(sends_at_once=True)
        async with serving(handle) as harness:
            with socket.create_connection(("127.0.0.1", harness.listener.port)) as client:
                client.sendall(3 * PRODUCE)
                await handle.take(3)

                handle.parked[0].complete([b"a"])
                handle.parked[1].complete([b"b"])

                assert _received(client) == b""
                handle.parked[2].complete([b"c"])
                while not (data := _received(client)):
                    await asyncio.sleep(0)
                assert data == b"abc"

    run(test)
