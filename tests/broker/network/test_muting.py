"""What keeps a connection from being read: each reason ends by itself, and the others stay."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

from broker.loop.deferred import Deferred
from broker.network.connection import Connection, State
from broker.network.context import ConnectionFacts
from storage.file_slice import FileSlice, SegmentFile
from tests.broker.network.harness import Harness, framed, run, serving

FRAME_DEADLINE_MS = 30_000


class Throttling:
    """Echoes; a frame `throttle:MS` throttles its connection for MS milliseconds."""

    def __init__(self) -> None:
        self.handled: list[bytes] = []
        self.harness: Harness

    def __call__(self, frame: memoryview, facts: ConnectionFacts) -> Any:
        body = bytes(frame)
        self.handled.append(body)
        if body.startswith(b"throttle:"):
            self.connection(facts).throttle(int(body.partition(b":")[2]))
        return [framed(body)]

    def connection(self, facts: ConnectionFacts) -> Connection:
        return next(each for each in self.harness.registry._connections if each.facts is facts)


async def exchange(client: tuple[asyncio.StreamReader, asyncio.StreamWriter], body: bytes) -> None:
    reader, writer = client
    writer.write(framed(body))
    assert await reader.readexactly(len(body) + 4) == framed(body)


async def others_are_served(harness: Harness) -> None:
    """And with them the loop has been round more than once."""
    other = await harness.connect()
    for _ in range(3):
        await exchange(other, b"other")
    other[1].close()


def test_a_throttled_connection_starts_nothing_until_its_deadline() -> None:
    handle = Throttling()

    async def test() -> None:
        async with serving(handle) as harness:
            handle.harness = harness
            reader, writer = await harness.connect()
            writer.write(framed(b"throttle:500") + framed(b"second") + framed(b"third"))
            assert await reader.readexactly(16) == framed(b"throttle:500"), "the request itself is answered"
            writer.write(framed(b"fourth"))
            harness.clock.advance(499)
            await others_are_served(harness)
            assert not {b"second", b"third", b"fourth"} & set(handle.handled)

            harness.clock.advance(1)
            expected = framed(b"second") + framed(b"third") + framed(b"fourth")
            assert await reader.readexactly(len(expected)) == expected

    run(test)


def test_the_later_of_two_deadlines_counts() -> None:
    handle = Throttling()

    async def test() -> None:
        async with serving(handle) as harness:
            handle.harness = harness
            client = await harness.connect()
            await exchange(client, b"throttle:1000")
            (connection,) = harness.registry._connections
            connection.throttle(100)
            client[1].write(framed(b"next"))
            harness.clock.advance(999)
            await others_are_served(harness)
            assert b"next" not in handle.handled

            connection.throttle(500)
            harness.clock.advance(499)
            await others_are_served(harness)
            assert b"next" not in handle.handled

            harness.clock.advance(1)
            assert await client[0].readexactly(8) == framed(b"next")

    run(test)


def test_a_frame_that_throttling_keeps_unfinished_is_not_late() -> None:
    handle = Throttling()

    async def test() -> None:
        async with serving(handle, frame_deadline_ms=FRAME_DEADLINE_MS) as harness:
            handle.harness = harness
            reader, writer = await harness.connect()
            frame = framed(b"slow" * 10)
            writer.write(frame[:20])
            (connection,) = await connections(harness)
            while connection.partial_since_ms is None:
                await asyncio.sleep(0)
            connection.throttle(2 * FRAME_DEADLINE_MS)
            writer.write(frame[20:])

            harness.clock.advance(2 * FRAME_DEADLINE_MS + 1_000)
            assert await reader.readexactly(len(frame)) == frame

    run(test)


async def connections(harness: Harness) -> list[Connection]:
    while not len(harness.registry):
        await asyncio.sleep(0)
    return list(harness.registry._connections)


def test_throttling_and_a_peer_that_does_not_read_end_apart() -> None:
    """The connection is read again only when both are over."""
    size = 3_000_000
    handled: list[bytes] = []

    def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
        handled.append(bytes(frame))
        return [framed(bytes(size))]

    async def test() -> None:
        async with serving(handle, listener={"send_buffer_bytes": 10_000}) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b"first") + framed(b"second"))
            await reader.readexactly(1)
            (connection,) = await connections(harness)
            connection.throttle(500)
            await reader.readexactly(size + 3)
            other = await harness.connect()
            other[1].write(framed(b"other"))
            await other[0].readexactly(size + 4)
            assert b"second" not in handled

            harness.clock.advance(500)
            await reader.readexactly(size + 4)
            assert handled.count(b"second") == 1

    run(test)


def test_an_answer_that_comes_while_its_connection_closes_gives_its_file_back(tmp_path: Path) -> None:
    (tmp_path / "segment.log").write_bytes(bytes(100))
    parked = Deferred()

    async def test() -> None:
        file = SegmentFile.open(tmp_path / "segment.log")
        async with serving(lambda frame, facts: parked) as harness:
            with socket.create_connection(("127.0.0.1", harness.listener.port)) as client:
                client.sendall(framed(b"wait"))
                (connection,) = await connections(harness)
                while not connection.is_busy:
                    await asyncio.sleep(0)

                connection.close("for the test")
                parked.complete([FileSlice(file, 0, 100)])

                assert connection.state is State.CLOSING
                while len(harness.registry):
                    await asyncio.sleep(0)
                assert connection.state is State.CLOSED
        assert file._references == 1
        file.release()

    run(test)
