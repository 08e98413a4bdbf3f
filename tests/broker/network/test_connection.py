"""Connections over real sockets on uvloop: replies in order, record slices by sendfile, backpressure, limits and deadlines."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from broker.network.connection import Connection
from broker.network.context import CloseConnection, ConnectionFacts, ListenerFacts
from broker.network.listeners import Listener, limits_by_address
from broker.network.listening_sockets import ListenError
from broker.network.outbox import INLINE_SIZE, RUN_SIZE, TURN_SIZE
from protocol.framing import SCRATCH_SIZE
from storage.disk import SYSTEM_DISK
from storage.file_slice import FileSlice, SegmentFile
from tests.broker.network.harness import Harness, framed, run, serving


def test_pipelined_requests_are_answered_in_order() -> None:
    async def test() -> None:
        async with serving() as harness:
            reader, writer = await harness.connect()
            bodies = [b"\x00\x01" + str(i).encode() * (i % 40) for i in range(3000)]

            writer.write(b"".join(framed(body) for body in bodies))

            expected = b"".join(framed(body) for body in bodies)
            assert await reader.readexactly(len(expected)) == expected

    run(test)


def test_a_client_that_sends_without_end_lets_others_in_between() -> None:
    """libuv by itself reads 32 buffers of one connection before it looks at the next."""
    frames_count, frame = 20_000, framed(b"greedy" * 3)
    handled: list[bytes] = []

    async def test() -> None:
        def handle(frame: memoryview, facts: ConnectionFacts) -> None:
            handled.append(bytes(frame))
            if len(handled) == 2:  # the first of many, with the others right behind it
                modest.sendall(framed(b"modest"))

        async with serving(handle) as harness:
            with socket.create_connection(("127.0.0.1", harness.listener.port)) as modest, socket.socket() as greedy:
                modest.sendall(framed(b"hello"))
                while not handled:
                    await asyncio.sleep(0)
                greedy.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * frames_count * len(frame))
                greedy.connect(("127.0.0.1", harness.listener.port))
                greedy.sendall(frame * frames_count)
                while len(handled) < frames_count + 2:
                    await asyncio.sleep(0)

    run(test)

    assert handled.index(b"modest") * len(frame) <= 3 * SCRATCH_SIZE


def test_a_frame_with_a_short_rest_is_handled_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame of 60 KB takes two reads: one shows that it is large. To pause in between would cost two system calls and a turn."""
    frames_count, body = 3, bytes(60_000)
    reads: list[int] = []
    reads_at_turns: list[int] = []
    buffer_updated = Connection.buffer_updated

    def counting(connection: Connection, count: int) -> None:
        reads.append(count)
        buffer_updated(connection, count)

    async def test() -> None:
        handled: list[int] = []

        def handle(frame: memoryview, facts: ConnectionFacts) -> None:
            handled.append(len(frame))

        monkeypatch.setattr(Connection, "buffer_updated", counting)
        async with serving(handle) as harness:
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * frames_count * len(body))
                client.connect(("127.0.0.1", harness.listener.port))
                client.sendall(framed(body) * frames_count)
                while len(handled) < frames_count:
                    reads_at_turns.append(len(reads))
                    await asyncio.sleep(0)

    run(test)

    reads_of_turns = [after - before for before, after in itertools.pairwise(reads_at_turns)]
    assert max(reads_of_turns) == 2 and sum(reads[:2]) == 4 + len(body)


def test_segment_slices_arrive_between_their_headers(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "segment.log").write_bytes(content)

    async def test() -> None:
        file = SegmentFile.open(tmp_path / "segment.log")

        def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
            position, size = struct.unpack(">ii", frame)
            return [struct.pack(">i", size), FileSlice(file, position, size), b"tail"]

        async with serving(handle) as harness:
            reader, writer = await harness.connect()
            for position, size in ((0, 10), (5, 70_000), (100_000, 2_900_000), (2_999_999, 1)):
                writer.write(framed(struct.pack(">ii", position, size)))
                answer = await reader.readexactly(4 + size + 4)
                assert answer == struct.pack(">i", size) + content[position : position + size] + b"tail"
        assert file._references == 1
        file.release()

    run(test)


def test_a_large_slice_lets_others_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket would take all of it at once."""
    content = os.urandom(3 * TURN_SIZE)
    (tmp_path / "segment.log").write_bytes(content)
    sent: list[int] = []
    sent_before_others: list[int] = []
    sendfile = os.sendfile

    def counting_sendfile(*arguments: int) -> int:
        sent.append(sendfile(*arguments))
        return sent[-1]

    async def test() -> None:
        file = SegmentFile.open(tmp_path / "segment.log")

        def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
            asyncio.get_running_loop().call_soon(lambda: sent_before_others.append(sum(sent)))
            return [FileSlice(file, 0, len(content))]

        async with serving(handle, listener={"send_buffer_bytes": len(content)}) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b""))
            assert await reader.readexactly(len(content)) == content
        file.release()

    monkeypatch.setattr(os, "sendfile", counting_sendfile)
    run(test)

    assert sent_before_others == [TURN_SIZE]
    assert sum(sent) == len(content)


@pytest.mark.parametrize("size", [200, 200_000])
def test_a_slice_of_a_truncated_file_closes_the_connection(tmp_path: Path, size: int) -> None:
    (tmp_path / "segment.log").write_bytes(b"x" * 100)

    async def test() -> None:
        file = SegmentFile.open(tmp_path / "segment.log")
        async with serving(lambda frame, facts: [struct.pack(">i", size), FileSlice(file, 0, size)]) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b""))

            assert len(await reader.read()) <= 104
        assert file._references == 1
        file.release()

    run(test)


def test_small_slices_arrive_in_order_and_give_their_file_back(tmp_path: Path) -> None:
    """They are copied, up to a limit for one call, beyond which the next call goes on."""
    content = os.urandom(300_000)
    (tmp_path / "segment.log").write_bytes(content)
    size = INLINE_SIZE - 1

    async def test() -> None:
        file = SegmentFile.open(tmp_path / "segment.log")
        slices = [FileSlice(file, at, size) for at in range(0, 10 * size, size)]
        async with serving(lambda frame, facts: [chunk for each in slices for chunk in (b"head", each)]) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b""))

            received = await reader.readexactly(10 * (4 + size))
        assert received == b"".join(b"head" + content[at : at + size] for at in range(0, 10 * size, size))
        assert file._references == 1
        file.release()

    run(test)


def test_many_small_slices_let_others_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs a call, however small: thousands of partitions in one answer took 50 ms."""
    (tmp_path / "segment.log").write_bytes(bytes(100))
    slices_count, pread = 3 * TURN_SIZE // INLINE_SIZE, os.pread
    reads: list[int] = []
    reads_before_others: list[int] = []

    def counting_pread(*arguments: int) -> bytes:
        reads.append(1)
        return pread(*arguments)

    async def test() -> None:
        file = SegmentFile.open(tmp_path / "segment.log")

        def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
            asyncio.get_running_loop().call_soon(lambda: reads_before_others.append(len(reads)))
            return [chunk for _ in range(slices_count) for chunk in (b"head", FileSlice(file, 0, 100))]

        async with serving(handle) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b""))
            assert await reader.readexactly(104 * slices_count) == (b"head" + bytes(100)) * slices_count
        file.release()

    monkeypatch.setattr(SYSTEM_DISK, "pread", counting_pread)
    run(test)

    assert reads_before_others == [TURN_SIZE // INLINE_SIZE]


def test_an_answer_in_many_pieces_is_not_joined_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that reads slowly would have the rest joined anew each time it takes some."""
    offered_sizes: list[int] = []

    class CountingSocket(socket.socket):
        def send(self, data: Any, *flags: int) -> int:
            offered_sizes.append(len(data))
            return super().send(data, *flags)

    pieces = [bytes(1000) for _ in range(10_000)]

    async def test() -> None:
        monkeypatch.setattr(socket, "socket", CountingSocket)
        async with serving(lambda frame, facts: list(pieces)) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b""))
            assert await reader.readexactly(10_000_000) == bytes(10_000_000)

    run(test)

    assert max(offered_sizes) <= RUN_SIZE + 1000


def test_an_answer_in_many_pieces_lets_others_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket would take more at once, and while the peer reads as fast as we write, all of it."""
    sent: list[int] = []
    sent_before_others: list[int] = []

    class CountingSocket(socket.socket):
        def send(self, data: Any, *flags: int) -> int:
            sent.append(super().send(data, *flags))
            return sent[-1]

    def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
        asyncio.get_running_loop().call_soon(lambda: sent_before_others.append(sum(sent)))
        return [bytes(RUN_SIZE) for _ in range(3 * TURN_SIZE // RUN_SIZE)]

    async def test() -> None:
        monkeypatch.setattr(socket, "socket", CountingSocket)
        async with serving(handle, listener={"send_buffer_bytes": 3 * TURN_SIZE}) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b""))
            assert await reader.readexactly(3 * TURN_SIZE) == bytes(3 * TURN_SIZE)

    run(test)

    assert sent_before_others == [TURN_SIZE]


def test_a_peer_that_does_not_read_stops_being_read(tmp_path: Path) -> None:
    (tmp_path / "segment.log").write_bytes(bytes(8_000_000))

    async def test() -> None:
        file = SegmentFile.open(tmp_path / "segment.log")
        started = 0

        def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
            nonlocal started
            started += 1
            return [FileSlice(file, 0, 8_000_000)]

        async with serving(handle) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b"\x00\x01") * 50)
            await reader.readexactly(1)
            assert started <= 2

            remaining = 50 * 8_000_000 - 1
            while remaining:
                remaining -= len(await reader.read(1 << 20))
            assert started == 50
        file.release()

    run(test)


def test_the_connection_survives_a_peer_that_closes_with_responses_unsent(tmp_path: Path) -> None:
    (tmp_path / "segment.log").write_bytes(bytes(8_000_000))

    async def test() -> None:
        file = SegmentFile.open(tmp_path / "segment.log")
        async with serving(lambda frame, facts: [FileSlice(file, 0, 8_000_000)]) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b"\x00\x01"))
            await reader.readexactly(1)
            writer.transport.abort()
            while len(harness.registry):
                await asyncio.sleep(0.001)
        assert file._references == 1
        file.release()

    run(test)


@pytest.mark.parametrize("data", [struct.pack(">i", -1), struct.pack(">i", 1 << 30)])
def test_a_bad_frame_size_closes_that_connection_only(data: bytes) -> None:
    async def test() -> None:
        async with serving() as harness:
            reader, writer = await harness.connect()
            other_reader, other_writer = await harness.connect()
            writer.write(data)

            assert await reader.read() == b""
            other_writer.write(framed(b"ok"))
            assert await other_reader.readexactly(6) == framed(b"ok")

    run(test)


def test_close_connection_drops_the_answer_and_the_connection() -> None:
    def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
        raise CloseConnection("not served")

    async def test() -> None:
        async with serving(handle) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b"x"))

            assert await reader.read() == b""

    run(test)


def test_connections_over_the_limit_are_closed_at_once() -> None:
    async def test() -> None:
        async with serving(max_connections_per_ip=2) as harness:
            kept = [await harness.connect() for _ in range(2)]
            reader, _ = await harness.connect()

            assert await reader.read() == b""
            kept[0][1].write(framed(b"ok"))
            assert await kept[0][0].readexactly(6) == framed(b"ok")

    run(test)


def test_idle_connections_and_dribbled_frames_meet_their_deadlines() -> None:
    async def test() -> None:
        async with serving(idle_ms=600_000, frame_deadline_ms=30_000) as harness:
            dribbler, dribble_writer = await harness.connect()
            idler, idle_writer = await harness.connect()
            idle_writer.write(framed(b"hello"))
            await idler.readexactly(9)
            dribble_writer.write(b"\x00\x00")
            while not any(c.partial_since_ms is not None for c in harness.registry._connections):
                await asyncio.sleep(0.001)

            harness.clock.advance(31_000)
            assert await dribbler.read() == b""
            assert len(harness.registry._connections) == 1
            harness.clock.advance(600_000)
            assert await idler.read() == b""

    run(test)


def test_large_frames_beyond_the_memory_budget_wait_for_each_other() -> None:
    async def test() -> None:
        async with serving(max_request_memory=4_500_000, max_frame_size=1 << 22) as harness:
            first, second = await harness.connect(), await harness.connect()
            body = bytes(4_000_000)
            first[1].write(struct.pack(">i", len(body)) + body[:-1])
            while harness.registry.memory.held_size < len(body) - 1:
                await asyncio.sleep(0.001)
            second[1].write(framed(body))
            while not harness.registry.memory._paused:
                await asyncio.sleep(0.001)

            first[1].write(body[-1:])

            assert len(await first[0].readexactly(4_000_004)) == 4_000_004
            assert len(await second[0].readexactly(4_000_004)) == 4_000_004
            assert harness.registry.memory.held_size == 0

    run(test)


def test_a_taken_port_is_one_line() -> None:
    async def test() -> None:
        async with serving() as harness:
            second = Listener(ListenerFacts("PLAINTEXT"), harness.registry)
            with pytest.raises(ListenError, match=f"can't listen on 127.0.0.1:{harness.listener.port}: Address already in use"):
                second.bind("127.0.0.1", harness.listener.port)

    run(test)


async def _accepted_options(harness: Harness) -> dict[str, int]:
    """The options of a connection's socket on the broker's side."""
    await harness.connect()
    while not len(harness.registry):
        await asyncio.sleep(0)
    (connection,) = harness.registry._connections
    accepted = connection._transport.get_extra_info("socket")  # type: ignore[union-attr]
    names = ("SO_SNDBUF", "SO_RCVBUF", "SO_KEEPALIVE")
    return {name: accepted.getsockopt(socket.SOL_SOCKET, getattr(socket, name)) for name in names}


def test_connections_have_the_socket_buffers_that_were_asked_for_and_keep_alive() -> None:
    async def test() -> None:
        async with serving() as harness:
            tuned = await _accepted_options(harness)
        async with serving(listener={"send_buffer_bytes": 30_000, "receive_buffer_bytes": 20_000}) as harness:
            fixed = await _accepted_options(harness)

        # Linux doubles what it is asked for, for its own bookkeeping.
        assert (fixed["SO_SNDBUF"], fixed["SO_RCVBUF"]) == (60_000, 40_000)
        assert tuned["SO_SNDBUF"] > 60_000 and tuned["SO_RCVBUF"] > 40_000
        assert tuned["SO_KEEPALIVE"] == 1

    run(test)


def test_the_send_buffer_is_limited_when_a_handler_asks_for_it_once() -> None:
    async def test() -> None:
        seen: list[bool] = []

        def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
            if limit := facts.limit_send_buffer:
                limit()
            seen.append(facts.limit_send_buffer is None)
            return [framed(b"answer")]

        async with serving(handle, consumers_send_buffer_bytes=30_000) as harness:
            before = await _accepted_options(harness)
            reader, writer = await harness.connect()
            writer.write(framed(b"?") * 2)
            await reader.readexactly(2 * len(framed(b"answer")))
            connection = list(harness.registry._connections)[-1]
            accepted = connection._transport.get_extra_info("socket")  # type: ignore[union-attr]

            assert before["SO_SNDBUF"] > 60_000
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 60_000
            assert seen == [True, True]

    run(test)


def test_a_large_answer_leaves_through_a_small_send_buffer() -> None:
    async def test() -> None:
        async with serving(lambda frame, facts: [framed(b"x" * 3_000_000)], listener={"send_buffer_bytes": 5_000}) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b"?"))
            assert await reader.readexactly(3_000_004) == framed(b"x" * 3_000_000)

    run(test)


@pytest.mark.parametrize("send_buffer_bytes", [4_096, 16_384, 32_768])
def test_a_file_leaves_through_a_send_buffer_that_is_smaller_than_a_segment(send_buffer_bytes: int, tmp_path: Path) -> None:
    """The peer's acknowledgement came 40 ms after each segment, for which the buffer stayed full: 20 MB took ten seconds and more."""
    content = bytes(20_000_000)
    (tmp_path / "segment.log").write_bytes(content)

    async def test() -> None:
        file = SegmentFile.open(tmp_path / "segment.log")

        def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
            return [FileSlice(file, 0, len(content))]

        async with serving(handle, listener={"send_buffer_bytes": send_buffer_bytes}) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(b"?"))
            async with asyncio.timeout(6):
                assert await reader.readexactly(len(content)) == content
        file.release()

    run(test)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: TCP_INFO tells a listening socket's backlog")
def test_the_kernel_holds_as_many_connections_as_asked_for() -> None:
    async def test() -> None:
        async with serving(listener={"backlog": 7}) as harness:
            (listening,) = harness.listener._acceptor.sockets  # type: ignore[attr-defined]
            (backlog,) = struct.unpack_from("I", listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32), 28)
            assert backlog == 7

    run(test)


@pytest.mark.parametrize(("overrides", "admitted_count"), [({"localhost": 2}, 2), ({"127.0.0.1": 3}, 3), ({"10.0.0.1": 9}, 1)])
def test_an_address_may_have_a_limit_of_its_own(overrides: dict[str, int], admitted_count: int) -> None:
    async def test() -> None:
        async with serving(max_connections_per_ip=1, max_connections_of_ip=limits_by_address(overrides)) as harness:
            connections = [await harness.connect() for _ in range(4)]
            for _, writer in connections:
                writer.write(framed(b"?"))
            answers = [await reader.read(1) for reader, _ in connections]
            assert sum(map(bool, answers)) == admitted_count

    run(test)


def test_a_limit_of_an_unknown_host_stops_the_start() -> None:
    with pytest.raises(ListenError, match=r"can't resolve host 'no-such-host\.invalid'"):
        limits_by_address({"no-such-host.invalid": 1})
