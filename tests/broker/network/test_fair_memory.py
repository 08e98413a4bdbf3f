"""The limit of request memory over real sockets: who dribbles waits, who is honest is served, and no memory is no error of asyncio's."""

from __future__ import annotations

import asyncio
import logging
import mmap
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from broker.loop.deferred import Deferred
from broker.network.context import ConnectionFacts
from broker.network.listeners import SWEEP_INTERVAL_MS
from protocol.framing import POOLED_BUFFER_SIZE, FrameAssembler
from tests.broker.network.harness import Harness, framed, run, serving

LIMIT = 64 << 20  # bytes; usual requests are those of a megabyte
LARGE_FRAME_SIZE = 16 << 20
USUAL_FRAME_SIZE = 900_000
SETTLE_INTERVAL_S = 0.01
SETTLED_TURNS = 10


def count(frame: memoryview, facts: ConnectionFacts) -> Any:
    """Answers with the frame's size."""
    return [framed(struct.pack(">i", len(frame)))]


class Client(asyncio.Protocol):
    """Sends in the background whatever is given to it, as far as the broker takes it."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._is_lost = False
        self._changed = asyncio.Event()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._changed.set()

    async def connect(self, harness: Harness) -> Client:
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", harness.listener.port)
        return self

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def send_part(self, frame_size: int, sent_size: int) -> None:
        self.send(struct.pack(">i", frame_size) + bytes(sent_size))

    async def produce(self, size: int) -> None:
        """A whole frame, and its answer."""
        self.send(framed(bytes(size)))
        while len(self._received) < 8:
            assert not self._is_lost
            await self._wait()
        assert self._received == framed(struct.pack(">i", size))
        self._received.clear()

    async def closed(self) -> None:
        while not self._is_lost:
            await self._wait()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


async def clients(harness: Harness, number: int) -> list[Client]:
    return [await Client().connect(harness) for _ in range(number)]


async def settled(harness: Harness) -> None:
    """Until the memory held does not change any more, over so many turns of the loop that its sockets have been looked at."""
    before, unchanged_count = -1, 0
    while unchanged_count < SETTLED_TURNS:
        await asyncio.sleep(SETTLE_INTERVAL_S)
        unchanged_count = unchanged_count + 1 if harness.registry.memory.held_size == before else 0
        before = harness.registry.memory.held_size


class Peak:
    """The most that was held at any turn of the loop."""

    def __init__(self, harness: Harness) -> None:
        self._memory = harness.registry.memory
        self._loop = asyncio.get_running_loop()
        self.held_size = 0
        self._look()

    def _look(self) -> None:
        self.held_size = max(self.held_size, self._memory.held_size)
        self._loop.call_soon(self._look)


def test_a_usual_produce_is_served_at_once_beside_unfinished_large_frames() -> None:
    """Its address is that of the others, and no time passes: nothing was closed for it."""

    async def test() -> None:
        async with serving(count, max_request_memory=LIMIT, max_frame_size=LARGE_FRAME_SIZE) as harness:
            peak = Peak(harness)
            attackers = await clients(harness, 25)
            for attacker in attackers:
                attacker.send_part(LARGE_FRAME_SIZE, LARGE_FRAME_SIZE - 500_000)
            await settled(harness)
            assert harness.registry.memory.held_size > LIMIT // 2

            (honest,) = await clients(harness, 1)
            for _ in range(20):
                await honest.produce(USUAL_FRAME_SIZE)

            assert len(harness.registry) == 26
            assert peak.held_size <= LIMIT + POOLED_BUFFER_SIZE + LARGE_FRAME_SIZE

    run(test)


def test_stalled_connections_are_closed_for_those_that_wait(caplog: pytest.LogCaptureFixture) -> None:
    """So many that nothing is left even for usual requests: the honest one waits for two looks at who is stalled."""

    async def test() -> None:
        async with serving(count, max_request_memory=LIMIT, max_frame_size=LARGE_FRAME_SIZE) as harness:
            attackers = await clients(harness, 90)
            for attacker in attackers:
                attacker.send_part(1_000_000, 980_000)
            await settled(harness)
            assert harness.registry.memory.held_size > LIMIT
            (honest,) = await clients(harness, 1)
            answer = asyncio.ensure_future(honest.produce(USUAL_FRAME_SIZE))
            await settled(harness)
            assert not answer.done()

            harness.clock.advance(SWEEP_INTERVAL_MS)
            await settled(harness)
            harness.clock.advance(SWEEP_INTERVAL_MS)

            await answer
            assert 1 < len(harness.registry) < 60

    with caplog.at_level(logging.INFO, "barnabas.network"):
        run(test)
    lines = [record for record in caplog.records if "wait for memory" in record.getMessage()]
    assert 1 <= len(lines) <= 10
    assert {record.levelno for record in lines} == {logging.WARNING}


def test_large_frames_beyond_the_limit_are_all_served() -> None:
    async def test() -> None:
        async with serving(count, max_request_memory=LIMIT // 2, max_frame_size=LARGE_FRAME_SIZE) as harness:
            peak = Peak(harness)
            honest = await clients(harness, 8)

            await asyncio.gather(*(client.produce(LARGE_FRAME_SIZE) for client in honest))

            assert peak.held_size <= LIMIT // 2 + POOLED_BUFFER_SIZE + LARGE_FRAME_SIZE
            assert harness.registry.memory.held_size == 0

    run(test)


def test_who_waits_for_memory_is_not_late() -> None:
    """The deadline of a frame is for those who send slowly, not for those who are not read from."""

    async def test() -> None:
        async with serving(count, max_request_memory=LIMIT // 4, max_frame_size=LARGE_FRAME_SIZE, frame_deadline_ms=500) as harness:
            slow, fast = await clients(harness, 2)
            slow.send_part(LARGE_FRAME_SIZE, LARGE_FRAME_SIZE - 100_000)
            await settled(harness)
            answer = asyncio.ensure_future(fast.produce(LARGE_FRAME_SIZE))
            await settled(harness)
            assert harness.registry.memory.waiting_count == 1

            harness.clock.advance(SWEEP_INTERVAL_MS)

            await slow.closed()
            await answer

    run(test)


def test_a_frame_behind_its_own_parked_request_does_not_block_others_for_long() -> None:
    async def test() -> None:
        def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
            return Deferred() if frame[0] else count(frame, facts)

        async with serving(handle, max_request_memory=LIMIT // 2, max_frame_size=LARGE_FRAME_SIZE) as harness:
            attackers = await clients(harness, 3)
            for attacker in attackers:
                attacker.send(framed(b"\x01") + framed(bytes(LARGE_FRAME_SIZE)))
            await settled(harness)
            (honest,) = await clients(harness, 1)
            answer = asyncio.ensure_future(honest.produce(LARGE_FRAME_SIZE))
            await settled(harness)
            assert not answer.done()

            for _ in range(2 * 3):  # an attacker's frame is judged by a whole interval
                harness.clock.advance(SWEEP_INTERVAL_MS)
                await settled(harness)

            await answer

    run(test)


def test_answers_that_are_not_taken_count() -> None:
    async def test() -> None:
        async with serving(lambda frame, facts: [framed(bytes(20 << 20))]) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b"?"))
            while harness.registry.memory.held_size < 8 << 20:
                await asyncio.sleep(0.001)

            assert len(await reader.readexactly((20 << 20) + 4)) == (20 << 20) + 4
            while harness.registry.memory.held_size:
                await asyncio.sleep(0.001)

    run(test)


def test_a_frame_that_a_thread_looks_at_counts_after_its_connection_has_ended() -> None:
    async def test() -> None:
        kept: list[memoryview] = []
        done = threading.Event()

        def work() -> None:
            view = kept.pop()
            done.wait()
            assert view[-1] == 0

        def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
            kept.append(frame)
            harness.executor.submit(work)
            return Deferred()

        async with serving(handle, max_frame_size=LARGE_FRAME_SIZE) as harness:
            _, writer = await harness.connect()
            writer.write(framed(bytes(LARGE_FRAME_SIZE)))
            while harness.registry.memory.held_size < LARGE_FRAME_SIZE:
                await asyncio.sleep(0.001)
            writer.transport.abort()
            while len(harness.registry):
                await asyncio.sleep(0.001)
            assert harness.registry.memory.held_size == LARGE_FRAME_SIZE

            done.set()
            while harness.registry.memory.held_size:
                await asyncio.sleep(0.001)

    run(test)


@pytest.fixture
def little_address_space() -> Iterator[None]:
    """What is used now and less than a large frame more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + 200 * (1 << 20), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def test_no_memory_for_a_frame_closes_that_connection_with_one_line(little_address_space: None, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving(count, max_frame_size=1 << 30) as harness:
            greedy, honest = await clients(harness, 2)
            greedy.send_part(1 << 30, 10_000)
            await greedy.closed()

            await honest.produce(USUAL_FRAME_SIZE)

    run(test)
    _assert_one_line_of_no_memory(caplog)


@pytest.mark.parametrize("is_inside_frame", [False, True])
def test_no_memory_for_a_read_closes_that_connection_with_one_line(
    is_inside_frame: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What get_buffer raises is otherwise logged by asyncio, without limit, and the connection is dead without a word."""
    get_buffer = FrameAssembler.get_buffer
    failing: list[FrameAssembler] = []

    def fail(assembler: FrameAssembler) -> memoryview:
        if failing and assembler is failing[0] and assembler.is_inside_large_frame is is_inside_frame:
            raise MemoryError
        failing.append(assembler)
        return get_buffer(assembler)

    async def test() -> None:
        async with serving(count, max_frame_size=LARGE_FRAME_SIZE) as harness:
            greedy, honest = await clients(harness, 2)
            greedy.send_part(LARGE_FRAME_SIZE, 8_000)
            greedy.send_part(0, 3_000_000)
            await greedy.closed()

            await honest.produce(USUAL_FRAME_SIZE)

    monkeypatch.setattr(FrameAssembler, "get_buffer", fail)
    if not is_inside_frame:
        failing_first = FrameAssembler.__init__

        def note(assembler: FrameAssembler, *arguments: Any, **named: Any) -> None:
            failing_first(assembler, *arguments, **named)
            failing.append(assembler)

        monkeypatch.setattr(FrameAssembler, "__init__", note)
    run(test)
    _assert_one_line_of_no_memory(caplog)


def _assert_one_line_of_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.name for record in lines] == ["barnabas.network"]
    assert "memory" in lines[0].getMessage()
    assert lines[0].exc_info is None


def test_a_peer_that_ends_during_a_large_frame_is_told_from_one_that_waits() -> None:
    async def test() -> None:
        async with serving(count, max_request_memory=LIMIT, max_frame_size=LARGE_FRAME_SIZE) as harness:
            with socket.create_connection(("127.0.0.1", harness.listener.port)) as client:
                client.sendall(struct.pack(">i", LARGE_FRAME_SIZE) + bytes(100_000))
            while len(harness.registry):
                await asyncio.sleep(0.001)
            assert harness.registry.memory.held_size == 0

    run(test)
