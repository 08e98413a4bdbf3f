"""This broker as a client: versions are negotiated, answers find their requests, losses are told and survived."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from broker.dispatch import KafkaApis
from broker.loop.clock import SystemClock
from broker.loop.turns import Turns
from broker.network.client import PeerConnection, State
from broker.network.reconnects import CONNECT_TIMEOUTS_MS
from broker.network.sockets import SystemNetwork, connect_within
from protocol import codec
from protocol.apis import DECLARED
from protocol.framing import BufferPool
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.vote import VoteRequest
from tests.broker.network.harness import run, serving
from tests.broker.replication.world import World as ReplicationWorld
from tests.simulation.clock import LoopClock
from tests.simulation.inline_executor import InlineExecutor
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.node_network import NodeNetwork
from tests.simulation.trace import Trace

TIMEOUT_MS = 1_000
METADATA, API_VERSIONS = 3, 18


class Peer:
    """A server that speaks Metadata up to `newest`; `answer` makes the response to a frame, None for silence."""

    def __init__(self, world: World, *, newest: int = 9) -> None:
        self.world = world
        self.newest = newest
        self.versions_seen: list[int] = []
        self.is_silent = False
        self.writers: list[asyncio.StreamWriter] = []

    def listen(self) -> None:
        loop = self.world.loop

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), self.serve, loop=loop)

        self.world.network.listen("peer", 9092, protocol)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while True:
            try:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
            except (asyncio.IncompleteReadError, OSError):
                return
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            if key == API_VERSIONS:
                ranges = [ApiVersion(api_key=METADATA, min_version=0, max_version=self.newest)]
                body = codec.encode(ApiVersionsResponse(api_keys=ranges), version)
            elif self.is_silent:
                continue
            else:
                self.versions_seen.append(version)
                body = codec.encode(MetadataResponse(cluster_id=f"answer-{len(self.versions_seen)}"), version)
            tags = b"\0" if DECLARED[key].response_header_version(version) else b""
            writer.write(struct.pack(">ii", 4 + len(tags) + len(body), correlation_id) + tags + body)


class World:
    def __init__(self) -> None:
        self.loop = SimulatedLoop(Trace())
        self.network = SimulatedNetwork(self.loop, random.Random(1))
        self.tasks: list[asyncio.Task[Any]] = []
        self.connection = PeerConnection(
            "peer",
            9092,
            client_id="test",
            network=NodeNetwork(self.network, "client"),
            loop=self.loop,
            executor=InlineExecutor(),
            clock=LoopClock(self.loop),
            pool=BufferPool(),
            run_in_background=self.run_in_background,
            request_timeout_ms=TIMEOUT_MS,
            max_frame_size=1_000_000,
        )
        self.answers: list[Any] = []

    def run_in_background(self, work: Awaitable[Any]) -> None:
        self.tasks.append(self.loop.create_task(work))  # type: ignore[arg-type]

    def run(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        assert not self.loop.errors

    def ask(self, count: int = 1) -> None:
        for _ in range(count):
            self.connection.send(MetadataRequest(topics=[]), self.answers.append)

    @property
    def clusters(self) -> list[str | None]:
        return [None if answer is None else answer.cluster_id for answer in self.answers]


@pytest.fixture
def world() -> World:
    return World()


def test_requests_are_sent_in_the_newest_common_version_and_answered_in_order(world: World) -> None:
    peer = Peer(world, newest=9)
    peer.listen()

    world.ask(12)
    world.run(1)

    assert world.clusters == [f"answer-{number}" for number in range(1, 13)]
    assert set(peer.versions_seen) == {9}


def test_a_peer_that_is_newer_gets_our_newest_version(world: World) -> None:
    peer = Peer(world, newest=99)
    peer.listen()

    world.ask()
    world.run(1)

    assert peer.versions_seen == [DECLARED[METADATA].max_version]


def test_what_the_peer_does_not_speak_is_not_sent(world: World) -> None:
    Peer(world).listen()

    world.connection.send(VoteRequest(), world.answers.append)
    world.run(1)

    assert world.answers == [None]
    assert world.connection.state is State.READY


def test_nobody_listening_is_told_at_once_and_tried_again_later(world: World) -> None:
    world.ask()
    world.run(0.03)
    assert world.answers == [None]

    Peer(world).listen()
    world.run(1)
    world.ask()
    world.run(1)

    assert world.clusters == [None, "answer-1"]


async def test_a_host_that_can_be_no_name_cannot_be_reached_as_one_that_does_not_exist() -> None:
    """Python refuses it with a ValueError. Nobody was told then, and each request to that node waited for its timeout."""
    loop = asyncio.get_running_loop()

    with pytest.raises(OSError, match=r"a\.\.b"):
        await connect_within(TIMEOUT_MS, SystemClock(loop), SystemNetwork(loop), "a..b", 9092, asyncio.Protocol)


def test_a_connection_that_is_silent_is_given_up_and_made_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system repeats its attempt at ever longer intervals, up to a minute: long after the network is whole again."""
    Peer(world).listen()

    async def connect_never(*_: Any) -> tuple[Any, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(NodeNetwork, "connect", connect_never)
        world.ask()
        world.run(1)
    world.run(CONNECT_TIMEOUTS_MS[0] / 1000)
    world.ask()
    world.run(1)

    assert world.clusters == [None, "answer-1"]


def test_each_attempt_that_nobody_answers_gives_the_next_one_twice_the_time_up_to_the_maximum(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up_s: list[float] = []

    async def connect_never(*_: Any) -> tuple[Any, Any]:
        began_s = world.loop.time()
        try:
            await asyncio.Event().wait()
        finally:
            given_up_s.append(round(world.loop.time() - began_s, 3))
        raise AssertionError

    monkeypatch.setattr(NodeNetwork, "connect", connect_never)
    for _ in range(4):
        world.ask()
        world.run(CONNECT_TIMEOUTS_MS[1] / 1000 + 5)

    assert given_up_s == [10.0, 20.0, 30.0, 30.0]


def test_a_lost_connection_fails_what_is_under_way_and_the_next_request_connects_again(world: World) -> None:
    peer = Peer(world)
    peer.listen()
    world.ask()
    world.run(1)
    lost: list[str] = []
    world.connection.on_lost = lambda: lost.append("lost")

    peer.is_silent = True
    world.ask(2)
    world.run(0.01)
    peer.writers[0].transport.abort()
    world.run(0.1)
    peer.is_silent = False
    world.ask()
    world.run(1)

    assert world.clusters == ["answer-1", None, None, "answer-2"]
    assert lost == ["lost"]


def test_a_request_that_is_not_answered_in_time_ends_the_connection(world: World) -> None:
    peer = Peer(world)
    peer.listen()
    peer.is_silent = True

    world.ask(3)
    world.run(TIMEOUT_MS / 1000 + 0.5)

    assert world.answers == [None, None, None]
    assert len(peer.writers) == 1


def test_each_request_has_its_own_time_however_many_were_answered_before(world: World) -> None:
    peer = Peer(world)
    peer.listen()
    world.ask()
    world.run(TIMEOUT_MS * 0.5 / 1000)
    peer.is_silent = True

    world.ask()
    world.run(TIMEOUT_MS * 0.8 / 1000)
    assert world.clusters == ["answer-1"]

    world.run(TIMEOUT_MS * 0.3 / 1000)
    assert world.clusters == ["answer-1", None]


def test_a_request_may_have_less_time_than_those_before_it(world: World) -> None:
    peer = Peer(world)
    peer.listen()
    peer.is_silent = True
    world.ask()

    world.connection.send(MetadataRequest(topics=[]), world.answers.append, timeout_ms=TIMEOUT_MS // 4)
    world.run(TIMEOUT_MS * 0.4 / 1000)

    assert world.answers == [None, None]  # with the connection


def test_an_answer_to_another_request_ends_the_connection(world: World) -> None:
    peer = Peer(world)
    peer.listen()
    world.ask()
    world.run(1)

    peer.is_silent = True
    world.ask()
    world.run(0.01)
    peer.writers[0].write(struct.pack(">ii", 4, 12345))
    world.run(0.1)

    assert world.clusters == ["answer-1", None]
    assert world.connection.state is not State.READY


def test_closing_answers_all_who_wait_and_later_requests(world: World) -> None:
    Peer(world).listen()
    world.ask(8)
    world.connection.close()
    world.ask()
    world.run(1)

    assert world.answers == [None] * 9


def test_it_speaks_over_the_machine_s_own_sockets(tmp_path: Path) -> None:
    replicas = ReplicationWorld(tmp_path)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        apis = KafkaApis(replicas.services(), Turns(loop.call_soon, replicas.clock.monotonic_us))
        tasks: list[asyncio.Task[Any]] = []
        async with serving(apis.handle) as harness:
            connection = PeerConnection(
                "127.0.0.1",
                harness.listener.port,
                client_id="test",
                network=SystemNetwork(loop),
                loop=loop,
                executor=harness.executor,
                clock=SystemClock(loop),
                pool=BufferPool(),
                run_in_background=lambda work: tasks.append(loop.create_task(work)),  # type: ignore[arg-type]
                request_timeout_ms=20_000,
                max_frame_size=1_000_000,
            )
            answer = loop.create_future()
            connection.send(MetadataRequest(topics=[]), lambda response: answer.set_result(response.cluster_id))
            assert await answer == "cluster"

            connection.close()
            while len(harness.registry):
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)

    run(test)
