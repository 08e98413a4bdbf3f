"""Listeners, connections and their outboxes run unchanged on the simulated network and loop."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.dispatch import KafkaApis
from broker.loop.turns import Turns
from broker.network.client import PeerConnection
from broker.network.context import ConnectionFacts, ListenerFacts
from broker.network.listeners import ConnectionRegistry, Listener
from broker.network.listening_sockets import ListenError
from protocol.framing import BufferPool
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from storage.file_slice import FileSlice, SegmentFile
from tests.broker.network.harness import framed
from tests.broker.replication.world import World, batch
from tests.simulation.clock import LoopClock
from tests.simulation.inline_executor import InlineExecutor
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import WRITE_HIGH_BYTES, SimulatedNetwork
from tests.simulation.node_network import NodeNetwork
from tests.simulation.trace import Trace

PORT = 9092
LARGE_SIZE = 3_000_000
LARGE_REQUESTS_COUNT, LARGE_REQUEST_SIZE = 8, 900_000


class SimulatedHost:
    """A listener of `broker` and what its connections share."""

    def __init__(self, handle: Any = None, *, seed: int = 1) -> None:
        self.loop = SimulatedLoop(Trace())
        self.network = SimulatedNetwork(self.loop, random.Random(seed))
        self.clock = LoopClock(self.loop)
        self.registry = ConnectionRegistry(
            self.loop,
            self.clock,
            InlineExecutor(),
            NodeNetwork(self.network, "broker"),
            max_request_memory=1 << 30,
            max_connections=100,
            max_connections_per_ip=100,
            idle_ms=600_000,
            frame_deadline_ms=30_000,
            busy_poll_us=0,
            on_count=lambda name, change: None,
            on_refused=lambda api_name, limit: None,
        )
        self.handle = handle

    def run(self, test: Callable[[], Awaitable[Any]], seconds: float = 600) -> Any:
        """Serve, run the test in virtual time, and stop; nothing may have failed on the loop."""

        async def serve_and_test() -> Any:
            listener = Listener(ListenerFacts("PLAINTEXT"), self.registry)
            listener.bind("broker", PORT)
            listener.listen()
            await listener.start(self.handle)
            try:
                return await asyncio.wait_for(test(), seconds)
            finally:
                self.registry.close()
                listener.stop()
                await asyncio.sleep(1)

        outcome = self.loop.run_until_complete(serve_and_test())
        assert not self.loop.errors
        assert not len(self.registry)
        return outcome

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader = asyncio.StreamReader(loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        transport, _ = await self.network.connect("client", "broker", PORT, lambda: protocol)
        return reader, asyncio.StreamWriter(transport, protocol, reader, self.loop)

    def client(self) -> PeerConnection:
        """A client of our own codec."""
        tasks: dict[asyncio.Task[Any], None] = {}
        return PeerConnection(
            "broker",
            PORT,
            client_id="test",
            network=NodeNetwork(self.network, "client"),
            loop=self.loop,
            executor=InlineExecutor(),
            clock=self.clock,
            pool=BufferPool(),
            run_in_background=lambda work: tasks.setdefault(self.loop.create_task(work)),  # type: ignore[arg-type]
            request_timeout_ms=60_000,
            max_frame_size=1 << 24,
        )

    async def ask(self, client: PeerConnection, message: Any, read: Callable[[Any], Any]) -> Any:
        """What `read` makes of the answer, whose views are valid only while it is called."""
        answer = self.loop.create_future()
        client.send(message, lambda response: answer.set_result(read(response)))
        return await answer


def produce(topic_id: bytes, value: str) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch(value))
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])])


def fetch(topic_id: bytes) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_bytes=1 << 20, session_epoch=-1, topics=[FetchTopic(topic_id=topic_id, partitions=[partition])])


def test_a_client_produces_and_fetches_over_the_simulated_network(tmp_path: Path) -> None:
    world = World(tmp_path)
    topic_id = world.create_topic("t")
    host = SimulatedHost()
    host.handle = KafkaApis(world.services(), Turns(host.loop.call_soon, host.clock.monotonic_us)).handle

    async def test() -> tuple[list[int], bytes]:
        client = host.client()
        offsets = []
        for number in range(20):
            request = produce(topic_id, f"value-{number}" * 200)
            offsets.append(await host.ask(client, request, lambda answer: answer.responses[0].partition_responses[0].base_offset))
        records = await host.ask(client, fetch(topic_id), lambda answer: bytes(answer.responses[0].partitions[0].records))
        client.close()
        return offsets, records

    offsets, records = host.run(test)

    assert offsets == list(range(20))
    assert all((f"value-{number}" * 200).encode() in records for number in range(20))


def test_large_requests_of_our_own_client_leave_as_the_peer_takes_them(tmp_path: Path) -> None:
    world = World(tmp_path)
    topic_id = world.create_topic("t")
    host = SimulatedHost()
    host.handle = KafkaApis(world.services(), Turns(host.loop.call_soon, host.clock.monotonic_us)).handle
    offsets: list[int] = []

    async def test() -> int:
        client = host.client()
        await host.ask(client, produce(topic_id, "first"), lambda answer: None)
        all_answered = host.loop.create_future()

        def answered(answer: Any) -> None:
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
            if len(offsets) == LARGE_REQUESTS_COUNT:
                all_answered.set_result(None)

        for _ in range(LARGE_REQUESTS_COUNT):
            client.send(produce(topic_id, "x" * LARGE_REQUEST_SIZE), answered)
        written = sum(each.get_write_buffer_size() for each in host.network._transports if each.local[0] == "client")
        await all_answered
        client.close()
        return written

    written_size = host.run(test)

    assert offsets == list(range(1, LARGE_REQUESTS_COUNT + 1))
    assert written_size < 2 * LARGE_REQUEST_SIZE, "the others wait in the client, not in the transport"


@pytest.mark.parametrize("seed", range(3))
def test_slices_larger_than_the_network_takes_arrive_whole_and_in_order(tmp_path: Path, seed: int) -> None:
    content = os.urandom(LARGE_SIZE)
    (tmp_path / "segment.log").write_bytes(content)
    file = SegmentFile.open(tmp_path / "segment.log")

    def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
        return [b"head", FileSlice(file, 0, LARGE_SIZE), b"middle", FileSlice(file, 7, 100), b"tail"]

    host = SimulatedHost(handle, seed=seed)

    async def test() -> bytes:
        reader, writer = await host.connect()
        writer.write(framed(b"?"))
        return await reader.readexactly(4 + LARGE_SIZE + 6 + 100 + 4)

    answer = host.run(test)

    assert answer == b"head" + content + b"middle" + content[7:107] + b"tail"
    assert file._references == 1
    file.release()


def test_a_peer_that_does_not_read_holds_one_answer_and_little_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "segment.log").write_bytes(bytes(LARGE_SIZE))
    file = SegmentFile.open(tmp_path / "segment.log")
    started: list[int] = []

    def handle(frame: memoryview, facts: ConnectionFacts) -> Any:
        started.append(1)
        return [FileSlice(file, 0, LARGE_SIZE)]

    host = SimulatedHost(handle)

    async def test() -> tuple[int, int]:
        reader, writer = await host.connect()
        transport: Any = writer.transport
        transport.pause_reading()
        writer.write(framed(b"\x00\x01") * 5)
        await asyncio.sleep(60)
        while_not_reading = transport.peer.get_write_buffer_size(), len(started)
        transport.resume_reading()
        await reader.readexactly(5 * LARGE_SIZE)
        return while_not_reading

    queued_size, started_count = host.run(test)

    assert queued_size <= 2 * WRITE_HIGH_BYTES
    assert started_count <= 2
    assert len(started) == 5
    assert file._references == 1
    file.release()


def test_a_peer_that_goes_away_gives_back_what_was_unsent(tmp_path: Path) -> None:
    (tmp_path / "segment.log").write_bytes(bytes(LARGE_SIZE))
    file = SegmentFile.open(tmp_path / "segment.log")
    host = SimulatedHost(lambda frame, facts: [FileSlice(file, 0, LARGE_SIZE)])

    async def test() -> None:
        reader, writer = await host.connect()
        writer.write(framed(b"?"))
        await reader.readexactly(1)
        writer.transport.abort()
        await asyncio.sleep(60)
        assert not len(host.registry)

    host.run(test)

    assert file._references == 1
    file.release()


def test_a_taken_address_is_told_as_on_a_machine() -> None:
    host = SimulatedHost(lambda frame, facts: None)

    async def test() -> None:
        second = Listener(ListenerFacts("SECOND"), host.registry)
        second.bind("broker", PORT)
        with pytest.raises(ListenError, match="listener SECOND: can't listen on broker:9092"):
            await second.start(host.handle)

    host.run(test)
