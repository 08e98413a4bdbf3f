"""Nothing of a connection outlives it: with the collector off, references alone must free buffers, requests and answers."""

from __future__ import annotations

import asyncio
import gc
import logging
import mmap
import socket
import struct
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from broker.loop.deferred import Deferred
from broker.network.connection import Connection
from broker.network.context import CloseConnection, ConnectionFacts
from broker.network.listeners import SWEEP_INTERVAL_MS
from broker.network.outbox import Outbox
from broker.network.request_pipeline import RequestPipeline
from protocol.framing import POOLED_BUFFER_SIZE, FrameAssembler
from tests.broker.network.harness import Harness, framed, run, serving

OF_A_CONNECTION = (Connection, RequestPipeline, FrameAssembler, Outbox, ConnectionFacts, Deferred, mmap.mmap)
PARTIAL_SIZES = [1_000, 10_000, 100_000, POOLED_BUFFER_SIZE, 900_000_000]
FRAME_SIZE_MAX = 1_000_000_000


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """What lives already is frozen: `gc.get_objects` then has the test's own objects alone, and not those of all tests before it."""
    gc.disable()
    gc.freeze()
    yield
    gc.enable()


class Answer(bytearray):
    """A chunk of a response that can be weakly referenced."""


def living() -> Counter[type]:
    return Counter(kind for kind in map(type, gc.get_objects()) if kind in OF_A_CONNECTION)


async def all_closed(harness: Harness) -> None:
    while len(harness.registry):
        await asyncio.sleep(0.001)
    for _ in range(3):  # the transport lets go of the connection after telling it
        await asyncio.sleep(0)


async def send_part(harness: Harness, size: int) -> socket.socket:
    """Begin a frame of `size` bytes and wait until its first bytes have been received."""
    client = socket.create_connection(("127.0.0.1", harness.listener.port))
    sent = min(size - 1, 50_000)
    client.sendall(struct.pack(">i", size) + bytes(sent))
    while harness.registry.memory.held_size < sent:
        await asyncio.sleep(0.001)
    return client


def by_fin(harness: Harness, client: socket.socket) -> None:
    client.close()


def by_reset(harness: Harness, client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def by_deadline(harness: Harness, client: socket.socket) -> None:
    harness.clock.advance(31_000)


def by_stop(harness: Harness, client: socket.socket) -> None:
    harness.registry.close()


@pytest.mark.parametrize("end", [by_fin, by_reset, by_deadline, by_stop])
def test_nothing_of_a_half_received_frame_outlives_its_connection(end: Callable[[Harness, socket.socket], None]) -> None:
    async def test(size: int) -> None:
        async with serving(max_frame_size=FRAME_SIZE_MAX) as harness:
            before = living()
            client = await send_part(harness, size)

            end(harness, client)
            await all_closed(harness)

            assert living() - before == Counter(), size
            assert harness.registry.memory.held_size == 0, size
            client.close()

    for size in PARTIAL_SIZES:
        run(partial(test, size))


def test_nothing_of_a_refused_connection_is_left() -> None:
    async def test() -> None:
        async with serving(max_connections_per_ip=0) as harness:
            before = living()
            with socket.create_connection(("127.0.0.1", harness.listener.port)) as client:
                client.sendall(struct.pack(">i", 500_000) + bytes(50_000))
                while await asyncio.get_running_loop().run_in_executor(None, is_open, client):
                    pass
            await all_closed(harness)

            assert living() - before == Counter()

    run(test)


def is_open(client: socket.socket) -> bool:
    try:
        return client.recv(1) != b""
    except ConnectionResetError:
        return False


class Service:
    """Answers as the first byte of a frame says, and remembers weakly what passed."""

    def __init__(self) -> None:
        self.parked: list[Deferred] = []
        self.buffers: list[weakref.ref[Any]] = []
        self.answers: list[weakref.ref[Any]] = []
        self.kept: list[memoryview] = []

    def handle(self, frame: memoryview, facts: ConnectionFacts) -> Any:
        records = frame[1:]
        if frame.nbytes > 10_000:
            self.buffers.append(weakref.ref(frame.obj))
        match frame[0]:
            case 0:
                deferred = Deferred()
                kept = [records]
                deferred.on_abandon = lambda: kept.clear()
                self.parked.append(deferred)
                return deferred
            case 1:
                return self.answer(10)
            case 2:
                raise CloseConnection(f"{len(records)} bytes")
            case _:
                raise ZeroDivisionError(len(records))

    def answer(self, size: int) -> list[Any]:
        answer = Answer(framed(bytes(size)))
        self.answers.append(weakref.ref(answer))
        return [answer]

    @property
    def is_all_gone(self) -> bool:
        return all(reference() is None for reference in self.buffers + self.answers)


@pytest.mark.parametrize("size", PARTIAL_SIZES[1:4] + [3_000_000])
@pytest.mark.parametrize("kind", [2, 3])
def test_a_request_that_fails_leaves_nothing(size: int, kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("barnabas.network"), "propagate", False)  # pytest keeps log records, and with them tracebacks
    service = Service()

    async def test() -> None:
        async with serving(service.handle, max_frame_size=FRAME_SIZE_MAX) as harness:
            before = living()
            reader, writer = await harness.connect()
            writer.write(framed(bytes([kind]) + bytes(size)))
            assert await reader.read() == b""
            writer.close()
            await all_closed(harness)

            assert living() - before == Counter()
            assert len(service.buffers) == (size >= 100_000) or size == 10_000
            assert service.is_all_gone

    run(test)


def test_a_parked_request_and_the_frames_behind_it_end_with_their_connection() -> None:
    service = Service()

    async def test() -> None:
        async with serving(service.handle, max_frame_size=FRAME_SIZE_MAX) as harness:
            before = living()
            client = socket.create_connection(("127.0.0.1", harness.listener.port))
            data = framed(b"\x00" + bytes(2_000_000)) + framed(b"\x01\x01" + bytes(3_000_000))
            await asyncio.get_running_loop().run_in_executor(None, client.sendall, data)
            while harness.registry.memory.held_size < 5_000_000:  # both frames are whole, so that nothing is read
                await asyncio.sleep(0.001)
            service.parked.clear()

            by_reset(harness, client)
            harness.clock.advance(SWEEP_INTERVAL_MS)
            await all_closed(harness)

            assert len(service.buffers) == 1
            assert service.is_all_gone
            assert living() - before == Counter()

    run(test)


def test_who_keeps_something_for_a_client_is_told_of_the_connections_end() -> None:
    closed: list[bool] = []

    def handle(frame: memoryview, facts: ConnectionFacts) -> None:
        facts.on_closed = lambda: closed.append(facts.is_closed)

    async def test() -> None:
        async with serving(handle) as harness:
            with socket.create_connection(("127.0.0.1", harness.listener.port)) as client:
                client.sendall(framed(b"hello"))
                while not harness.registry:
                    await asyncio.sleep(0.001)
            await all_closed(harness)

            assert closed == [True]

    run(test)


def test_an_answer_is_gone_once_it_has_left_and_so_is_its_request() -> None:
    service = Service()

    async def test() -> None:
        async with serving(service.handle, max_frame_size=FRAME_SIZE_MAX) as harness:
            reader, writer = await harness.connect()
            await reader_is_known(harness, reader, writer)
            before = living()
            for size in (10, 5_000_000):
                writer.write(framed(b"\x00" + bytes(2_000_000)))
                while not service.parked:
                    await asyncio.sleep(0.001)
                deferred = service.parked.pop()
                deferred.on_abandon()  # type: ignore[misc]
                deferred.complete(service.answer(size))
                del deferred
                assert len(await reader.readexactly(4 + size)) == 4 + size
            await asyncio.sleep(0)

            assert service.is_all_gone
            assert living() - before == Counter()

    run(test)


async def reader_is_known(harness: Harness, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(b"\x01"))
    await reader.readexactly(14)


def test_an_answer_that_was_not_taken_is_gone_with_its_connection() -> None:
    service = Service()

    async def test() -> None:
        async with serving(lambda frame, facts: service.answer(50_000_000), max_frame_size=FRAME_SIZE_MAX) as harness:
            before = living()
            reader, writer = await harness.connect()
            writer.write(framed(b"?") * 3)
            await reader.readexactly(1)

            writer.transport.abort()
            await all_closed(harness)

            assert service.answers and service.is_all_gone
            assert living() - before == Counter()

    run(test)
