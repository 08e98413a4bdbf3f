"""The simulated network keeps TCP's promises, and breaks connections as networks and processes do."""

import asyncio
import random

import pytest

from tests.simulation.loop import Life, SimulatedLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.trace import Trace

PAYLOAD = random.Random(7).randbytes(500_000)


class World:
    def __init__(self, seed: int = 1) -> None:
        self.loop = SimulatedLoop(Trace())
        self.network = SimulatedNetwork(self.loop, random.Random(seed))
        self.server = Life("server")
        self.received = bytearray()
        self.server_saw: list[str] = []

    async def serve(self) -> None:
        """Echo on server:9092."""

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=self.loop), self.echo, loop=self.loop)

        await self.loop.start_in(self.server, self._listen(protocol))

    async def _listen(self, protocol: object) -> None:
        self.network.listen("server", 9092, protocol)  # type: ignore[arg-type]

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(10_000):
                writer.write(data)
                await writer.drain()
        except OSError as error:
            self.server_saw.append(type(error).__name__)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader = asyncio.StreamReader(loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        transport, _ = await self.network.connect("client", "server", 9092, lambda: protocol)
        return reader, asyncio.StreamWriter(transport, protocol, reader, self.loop)

    async def exchange(self) -> bytes:
        await self.serve()
        reader, writer = await self.connect()
        writer.write(PAYLOAD)
        answer = await reader.readexactly(len(PAYLOAD))
        writer.close()
        assert await reader.read() == b""
        return answer


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_whatever_the_pieces(seed: int) -> None:
    world = World(seed)

    answer = world.loop.run_until_complete(world.exchange())

    assert answer == PAYLOAD
    assert not world.loop.errors


def test_nobody_listening_refuses() -> None:
    world = World()

    with pytest.raises(ConnectionRefusedError):
        world.loop.run_until_complete(world.connect())


def test_a_cut_link_delivers_after_the_heal() -> None:
    world = World()

    async def run() -> float:
        await world.serve()
        reader, writer = await world.connect()
        world.network.cut("client", "server")
        writer.write(b"hello")
        world.loop.call_later(3, world.network.heal, "client", "server")
        assert await reader.readexactly(5) == b"hello"
        return world.loop.time()

    assert world.loop.run_until_complete(run()) > 3


def test_what_was_lost_at_a_cut_comes_before_what_is_sent_after_the_heal() -> None:
    world = World()

    async def run() -> bytes:
        await world.serve()
        reader, writer = await world.connect()
        writer.write(b"first ")
        world.network.cut("client", "server")
        await asyncio.sleep(0.1)
        world.network.heal("client", "server")
        writer.write(b"second")
        return await reader.readexactly(12)

    assert world.loop.run_until_complete(run()) == b"first second"


def test_a_killed_process_resets_its_connections() -> None:
    world = World()

    async def run() -> None:
        await world.serve()
        reader, _ = await world.connect()
        world.loop.kill(world.server)
        world.network.process_died("server", is_silent=False)
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        with pytest.raises(ConnectionRefusedError):
            await world.connect()

    world.loop.run_until_complete(run())


def test_a_host_without_power_answers_nothing_until_it_is_back() -> None:
    world = World()

    async def run() -> None:
        await world.serve()
        reader, writer = await world.connect()
        world.loop.kill(world.server)
        world.network.process_died("server", is_silent=True)
        writer.write(b"is anybody there?")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 60)
        with pytest.raises(TimeoutError):
            await world.connect()
        world.network.host_is_back("server")
        writer.write(b"and now?")
        with pytest.raises(ConnectionResetError):
            await reader.read(1)

    world.loop.run_until_complete(run())


def test_one_seed_gives_one_trace() -> None:
    first, second = World(3), World(3)

    first.loop.run_until_complete(first.exchange())
    second.loop.run_until_complete(second.exchange())

    assert first.loop.time() == second.loop.time()
    assert first.loop.trace.hash == second.loop.trace.hash
