"""Each kind of listener serves its own APIs: what it does not serve it does not tell of, and closes the connection for.

Kafka: SocketServer.Processor.parseRequestHeader, ApiVersionManager.isApiEnabled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.dispatch import KafkaApis
from broker.handlers.cluster.api_versions import TELEMETRY_KEYS
from broker.handlers.services import ControllerServices
from broker.loop.turns import Turns
from protocol import codec
from protocol.apis import APIS, DECLARED, ListenerKind, apis_of
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest
from tests.broker.network.harness import Harness, framed, run, serving
from tests.broker.replication.world import World
from tests.support.wire import frame

API_VERSIONS, METADATA = 18, 3
UNKNOWN_KEY = 9_999


@asynccontextmanager
async def listening(root: Path, kind: ListenerKind) -> AsyncIterator[Harness]:
    world = World(root)
    services: Any = world.services()
    if kind is ListenerKind.CONTROLLER:
        quorum: Any = SimpleNamespace(kraft_version=1)
        services = ControllerServices(world.clock, services.metrics, services.metadata, None, None, None, None, quorum, services.config)  # type: ignore[arg-type]
    apis = KafkaApis(services, Turns(asyncio.get_running_loop().call_soon, world.clock.monotonic_us), kind)
    async with serving(apis.handle, kind=kind) as harness:
        yield harness


async def ask(harness: Harness, key: int, version: int, message: Any) -> bytes:
    """The answer's frame; b"" when the connection is closed instead."""
    reader, writer = await harness.connect()
    writer.write(framed(frame(key, version, codec.encode(message, version))))
    try:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    except asyncio.IncompleteReadError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("kind", ListenerKind)
def test_api_versions_tells_exactly_what_the_listener_serves(tmp_path: Path, kind: ListenerKind) -> None:
    async def test() -> None:
        async with listening(tmp_path, kind) as harness:
            request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
            answer = await ask(harness, API_VERSIONS, 3, request)

            response, _ = codec.decode(ApiVersionsResponse, 3, memoryview(answer), 4)
            assert [each.api_key for each in response.api_keys] == sorted(apis_of(kind).keys() - TELEMETRY_KEYS)

    run(test)


@pytest.mark.parametrize(
    ("version", "names"),
    [
        (3, {"metadata.version"}),
        (4, {"metadata.version", "kraft.version", "eligible.leader.replicas.version", "group.version", "transaction.version"}),
    ],
)
def test_a_controller_listener_tells_the_features_that_a_version_can_carry(tmp_path: Path, version: int, names: set[str]) -> None:
    """Clients of v3 take a minimum of 0 for an error (KAFKA-17011); a leader asks a newcomer with v4."""

    async def test() -> None:
        async with listening(tmp_path, ListenerKind.CONTROLLER) as harness:
            request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
            answer = await ask(harness, API_VERSIONS, version, request)

            response, _ = codec.decode(ApiVersionsResponse, version, memoryview(answer), 4)
            assert {each.name for each in response.supported_features} == names

    run(test)


def test_a_controller_listener_closes_the_connection_for_a_client_s_api(tmp_path: Path) -> None:
    async def test() -> None:
        async with listening(tmp_path, ListenerKind.CONTROLLER) as harness:
            assert await ask(harness, METADATA, 9, MetadataRequest(topics=[])) == b""
            assert await ask(harness, API_VERSIONS, 0, ApiVersionsRequest()) != b"", "other connections are served"

    run(test)


def test_a_client_listener_serves_the_same_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with listening(tmp_path, ListenerKind.CLIENT) as harness:
            assert await ask(harness, METADATA, 9, MetadataRequest(topics=[])) != b""

    run(test)


@pytest.mark.parametrize("kind", ListenerKind)
def test_no_listener_serves_an_unknown_api(tmp_path: Path, kind: ListenerKind) -> None:
    async def test() -> None:
        async with listening(tmp_path, kind) as harness:
            assert await ask(harness, UNKNOWN_KEY, 0, ApiVersionsRequest()) == b""

    run(test)


@pytest.mark.parametrize("kind", ListenerKind)
def test_an_unknown_version_of_api_versions_is_answered_on_every_listener(tmp_path: Path, kind: ListenerKind) -> None:
    async def test() -> None:
        async with listening(tmp_path, kind) as harness:
            reader, writer = await harness.connect()
            writer.write(framed(frame(API_VERSIONS, 99, b"")))
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

            response, _ = codec.decode(ApiVersionsResponse, 0, memoryview(answer), 4)
            assert [each.api_key for each in response.api_keys] == [API_VERSIONS]

    run(test)


def test_every_listener_serves_api_versions() -> None:
    assert all(API_VERSIONS in apis_of(kind) for kind in ListenerKind)
    assert apis_of(ListenerKind.CLIENT) == APIS
    assert set(APIS) < set(DECLARED)


def test_a_connection_remembers_its_client_s_software(tmp_path: Path) -> None:
    async def test() -> None:
        async with listening(tmp_path, ListenerKind.CLIENT) as harness:
            reader, writer = await harness.connect()
            request = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.0.0")
            writer.write(framed(frame(API_VERSIONS, 3, codec.encode(request, 3))))
            await reader.readexactly(4)

            (facts,) = (connection.facts for connection in harness.registry._connections)
            assert (facts.client_software_name, facts.client_software_version) == ("apache-kafka-java", "4.0.0")

    run(test)


def test_a_full_listener_leaves_room_on_others() -> None:
    async def test() -> None:
        async with serving(max_connections_of_listener=2) as harness:
            kept = [await harness.connect() for _ in range(2)]
            for reader, writer in kept:
                writer.write(framed(b"hello"))
                await reader.readexactly(9)
            waiting, waiting_writer = await harness.connect()
            waiting_writer.write(framed(b"hello"))

            other = await harness.listen_as("OTHER")
            reader, writer = await asyncio.open_connection("127.0.0.1", other.port)
            writer.write(framed(b"hello"))
            assert await reader.readexactly(9) == framed(b"hello")

            assert len(harness.registry) == 3
            kept[0][1].close()
            assert await waiting.readexactly(9) == framed(b"hello")

    run(test)
