"""TLS under a Connection, over sockets: nothing is lost or asked for twice when either side is slow, and nothing sleeps that has bytes."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import ssl
import warnings
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns, thread_time_ns
from typing import Any

import pytest

from broker.loop.cpu_time import CpuMeter
from broker.network.connection import Connection
from broker.network.context import ConnectionFacts
from broker.network.listeners import ConnectionRegistry, Secure
from broker.network.tls_transport import CiphertextBuffer, TlsTransport
from broker.security.tls.layer import TlsLayer
from broker.security.tls.principal_mapping import PrincipalMapper
from broker.security.tls.settings import ClientAuth
from broker.server.authenticators import TlsAuthenticator
from storage.file_slice import FileSlice, SegmentFile
from tests.broker.network.harness import Harness, framed, run, serving
from tests.broker.security.tls import stores

LARGE = os.urandom(3_000_000)


def make_secure(*, wrap: Callable[[Any], Any] = lambda layer: layer, **changes: Any) -> Any:
    """`wrap` may put something before the sending side of the plain transport."""
    context = stores.server(**changes)

    def make(registry: ConnectionRegistry) -> Secure:
        buffer = CiphertextBuffer()

        def secure(connection: Connection) -> asyncio.BufferedProtocol:
            return TlsTransport(
                connection,
                TlsLayer(context, is_server=True),
                buffer,
                make_layer=lambda transport: wrap(registry.network.make_layer(transport)),
                wait_turn=registry.frame_turn.wait,
                pread=os.pread,
                time=lambda: connection.facts.network_time,
            )

        return secure

    return make


def remembering(connections: list[Connection], make: Any) -> Any:
    """As `make`; the connections are told."""

    def make_and_remember(registry: ConnectionRegistry) -> Secure:
        secure = make(registry)

        def remember(connection: Connection) -> asyncio.BufferedProtocol:
            connections.append(connection)
            return secure(connection)

        return remember

    return make_and_remember


def authenticator() -> TlsAuthenticator:
    return TlsAuthenticator(PrincipalMapper("DEFAULT"), 10_000_000)


async def connect(harness: Harness, **changes: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(
        "127.0.0.1", harness.listener.port, ssl=stores.client(**changes), server_hostname="localhost", limit=4096
    )


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))


def echo(frame: memoryview, facts: ConnectionFacts) -> Any:
    return [framed(bytes(frame))]


def test_large_frames_come_back_whole_from_a_slow_reader() -> None:
    async def test() -> None:
        async with serving(echo, make_secure=make_secure(), authenticator=authenticator(), max_frame_size=1 << 23) as harness:
            reader, writer = await connect(harness)
            writer.write(framed(LARGE) + framed(b"small") + framed(LARGE))

            answers = []
            for _ in range(3):
                answers.append(await read_frame(reader))
                await asyncio.sleep(0.05)  # its socket is full meanwhile

            assert answers == [LARGE, b"small", LARGE]
            writer.close()

    run(test)


def test_many_small_frames_in_one_read_are_answered_without_another_event() -> None:
    """More than a connection reads at a time: what lies decrypted, or undecrypted, is announced by no event of the socket."""

    async def test() -> None:
        async with serving(echo, make_secure=make_secure(), authenticator=authenticator()) as harness:
            reader, writer = await connect(harness)
            frames = [b"%d" % number + b"x" * 100 for number in range(2_000)]
            writer.write(b"".join(map(framed, frames)))

            assert [await read_frame(reader) for _ in frames] == frames
            writer.close()

    run(test)


class Breaking:
    """The sending side of a transport, whose peer is gone for good once `is_broken` is set."""

    is_broken = False

    def __init__(self, layer: Any) -> None:
        self._layer = layer

    def send(self, data: bytes | memoryview, flags: int, /) -> int:
        if Breaking.is_broken:
            raise ConnectionResetError
        sent: int = self._layer.send(data, flags)
        return sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def test_a_connection_that_breaks_gets_nothing_more_of_what_lies_here(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another frame would be offered to a pipeline that keeps one already."""

    async def test() -> None:
        connections: list[Connection] = []

        def break_at_second(frame: memoryview, facts: ConnectionFacts) -> Any:
            monkeypatch.setattr(Breaking, "is_broken", bytes(frame) != b"first")
            return [framed(bytes(frame))]

        secure = remembering(connections, make_secure(wrap=Breaking))
        async with serving(break_at_second, make_secure=secure, authenticator=authenticator()) as harness:
            reader, writer = await connect(harness)
            writer.write(framed(b"first"))
            assert await read_frame(reader) == b"first"
            connections[0].throttle(1_000)  # so that much lies here when the second is read
            writer.write(framed(b"x" * 1_000) * 100)
            for _ in range(20):
                await asyncio.sleep(0)

            harness.clock.advance(1_000)

            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.transport.abort()

    run(test)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_throttled_connection_goes_on_with_what_lies_here() -> None:
    async def test() -> None:
        connections: list[Connection] = []
        async with serving(echo, make_secure=remembering(connections, make_secure()), authenticator=authenticator()) as harness:
            reader, writer = await connect(harness)
            writer.write(framed(b"first"))
            assert await read_frame(reader) == b"first"
            connections[0].throttle(1_000)
            frames = [b"y" * 3_000 + b"%d" % number for number in range(20)]
            writer.write(b"".join(map(framed, frames)))
            for _ in range(20):
                await asyncio.sleep(0)

            harness.clock.advance(1_000)

            assert [await read_frame(reader) for _ in frames] == frames
            writer.close()

    run(test)


def test_a_slice_of_a_file_is_sent_by_tls(tmp_path: Any) -> None:
    path = tmp_path / "segment"
    path.write_bytes(LARGE)
    file = SegmentFile.open(path)

    async def test() -> None:
        def serve(frame: memoryview, facts: ConnectionFacts) -> Any:
            return [len(LARGE).to_bytes(4), FileSlice(file, 0, len(LARGE))]

        async with serving(serve, make_secure=make_secure(), authenticator=authenticator()) as harness:
            reader, writer = await connect(harness)
            writer.write(framed(b"fetch"))

            assert await read_frame(reader) == LARGE
            writer.close()

    run(test)


def test_decryption_and_encryption_are_time_of_the_connection() -> None:
    async def test() -> None:
        connections: list[Connection] = []
        before_answers: list[int] = []

        def measure(frame: memoryview, facts: ConnectionFacts) -> Any:
            before_answers.append(facts.network_time.take())
            return [framed(bytes(frame))]

        make = remembering(connections, make_secure())
        meter = CpuMeter(monotonic_ns, thread_time_ns)
        meter.is_on = True
        async with serving(measure, make_secure=make, authenticator=authenticator(), max_frame_size=1 << 23, cpu_meter=meter) as harness:
            reader, writer = await connect(harness)
            writer.write(framed(LARGE))

            assert await read_frame(reader) == LARGE
            assert before_answers[0] > 0  # nothing was sent by then
            assert connections[0].facts.network_time.take() > 0
            writer.close()

    run(test)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_who_does_not_finish_the_handshake_is_closed_in_time(sent: bytes) -> None:
    async def test() -> None:
        async with serving(echo, make_secure=make_secure(), authenticator=authenticator()) as harness:
            reader, writer = await harness.connect()
            writer.write(sent)
            while not len(harness.registry):
                await asyncio.sleep(0)
            harness.clock.advance(9_000)
            assert len(harness.registry) == 1

            harness.clock.advance(2_000)

            with suppress(ConnectionResetError):  # what it sent may lie unread
                assert await reader.read() == b""
            assert len(harness.registry) == 0
            writer.close()

    run(test)


def test_the_descriptor_of_a_refused_connection_is_closed_once() -> None:
    """It was closed again by the collector, whoever had it by then: a flood of refused connections ended the broker, whose log directory
    had lost its descriptor."""

    async def test() -> None:
        async with serving(echo, make_secure=make_secure(), authenticator=authenticator(), max_connections_per_ip=0) as harness:
            for _ in range(10):
                reader, writer = await harness.connect()
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        run(test)
        gc.collect()

    assert [str(each.message) for each in found if "unclosed <socket" in str(each.message)] == []


def test_the_principal_is_the_name_of_the_certificate() -> None:
    async def test() -> None:
        def tell(frame: memoryview, facts: ConnectionFacts) -> Any:
            return [framed(facts.principal.encode())]

        secure = make_secure(client_auth=ClientAuth.REQUESTED)
        async with serving(tell, make_secure=secure, authenticator=authenticator()) as harness:
            reader, writer = await connect(harness, **stores.pem_key("client"))
            writer.write(framed(b"?"))
            named = await read_frame(reader)
            writer.close()
            reader, writer = await connect(harness)
            writer.write(framed(b"?"))
            unnamed = await read_frame(reader)
            writer.close()

        assert named.startswith(b"User:1.2.840.113549.1.9.1=#")  # an e-mail address, as Java writes it
        assert named.endswith(b",CN=alice,O=Barnabas tests")
        assert unnamed == b"User:ANONYMOUS"

    run(test)


def test_the_end_says_close_notify() -> None:
    async def test() -> None:
        async with serving(echo, make_secure=make_secure(), authenticator=authenticator()) as harness:
            context = stores.client()
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
            reader, writer = await harness.connect()
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    writer.write(outgoing.read())
                    incoming.write(await reader.read(65536))
            tls.write(b"\xff\xff\xff\xff")  # a frame of -1 bytes
            writer.write(outgoing.read())
            incoming.write(await reader.read())
            incoming.write_eof()

            assert tls.read(100) == b""  # SSLEOFError would be an end without close_notify
            writer.close()

    run(test)
