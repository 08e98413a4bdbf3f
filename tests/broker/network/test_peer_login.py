"""This node logs in to another by SASL, and again before its session ends; both ends are ours, over sockets, with a clock of the test's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any
from unittest.mock import patch

import pytest

from broker.network.client import PeerConnection, State
from broker.network.context import ConnectionFacts
from broker.network.sockets import SystemNetwork
from broker.security.sasl.conversation import Mechanism
from broker.security.sasl.plain_server import PlainServer
from broker.server.authenticators import SaslAuthenticator
from protocol import codec
from protocol.apis import DECLARED
from protocol.framing import BufferPool
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.sasl.exchange import SaslClient
from protocol.sasl.plain import PlainClient
from tests.broker.network.harness import Harness, run, serving
from tests.support.clock import ManualClock

SESSION_MS = 10_000
METADATA, API_VERSIONS, HANDSHAKE = 3, 18, 17


class Server:
    """Answers Metadata with the principal's name, and counts logins."""

    def __init__(self, clock: ManualClock, *, session_ms: int = SESSION_MS) -> None:
        self.logins = 0
        self.clock = clock
        self._session_ms = session_ms

    def start_login(self) -> PlainServer:
        self.logins += 1
        return PlainServer({"admin": "secret"})

    def authenticator(self) -> SaslAuthenticator:
        mechanisms = {"PLAIN": Mechanism(self.start_login, self._session_ms)}
        return SaslAuthenticator(mechanisms, max_receive_size=1_000, failure_delay_ms=0, clock=self.clock)

    def handle(self, frame: memoryview, facts: ConnectionFacts) -> Any:
        key, version = int.from_bytes(frame[:2]), int.from_bytes(frame[2:4])
        response: Any = MetadataResponse(cluster_id=facts.principal)
        if key == API_VERSIONS:
            response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=METADATA, min_version=0, max_version=9)])
        tags = b"\0" if DECLARED[key].response_header_version(version) else b""
        body = bytes(frame[4:8]) + tags + codec.encode(response, version)
        return [len(body).to_bytes(4) + body]


class Security:
    """PLAIN without TLS."""

    has_tls = False
    mechanism = "PLAIN"

    def __init__(self, password: str = "secret") -> None:
        self.password = password

    def secure(self, inner: Any, host: str) -> asyncio.BufferedProtocol:
        raise AssertionError("there is no TLS")

    def start_login(self) -> SaslClient:
        return PlainClient("admin", self.password)


class Client:
    def __init__(self, harness: Harness, clock: ManualClock, security: Security) -> None:
        loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Future[Any]] = set()
        self.connection = PeerConnection(
            "127.0.0.1",
            harness.listener.port,
            client_id="peer",
            network=SystemNetwork(loop),
            loop=loop,
            executor=harness.executor,
            clock=clock,
            pool=BufferPool(),
            run_in_background=self._run,
            request_timeout_ms=1_000,
            max_frame_size=1 << 20,
            security=security,
        )

    def ask(self) -> asyncio.Future[MetadataResponse | None]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.connection.send(MetadataRequest(topics=[]), answer.set_result)
        return answer

    def _run(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


def test_it_logs_in_before_its_first_request() -> None:
    """redpanda#31152: a node's own request came before the answer to its login."""

    async def test() -> None:
        clock = ManualClock()
        server = Server(clock)
        async with serving(server.handle, authenticator=server.authenticator()) as harness:
            client = Client(harness, clock, Security())

            answers = await asyncio.gather(client.ask(), client.ask())

            assert [answer and answer.cluster_id for answer in answers] == ["User:admin", "User:admin"]
            assert server.logins == 1
            client.connection.close()

    run(test)


def test_login_by_plain_does_not_wait_for_threads() -> None:
    """A slow disk holds them, and a node that is not let in in time takes the other one for dead."""

    async def test() -> None:
        clock = ManualClock()
        server = Server(clock)
        async with serving(server.handle, authenticator=server.authenticator()) as harness:
            client = Client(harness, clock, Security())
            with patch.object(harness.executor, "submit", side_effect=AssertionError("it waits for a thread")):
                answer = await client.ask()

            assert answer is not None and answer.cluster_id == "User:admin"
            client.connection.close()

    run(test)


def test_it_logs_in_again_before_its_session_ends_and_loses_no_request() -> None:
    async def test() -> None:
        clock = ManualClock()
        server = Server(clock)
        async with serving(server.handle, authenticator=server.authenticator()) as harness:
            client = Client(harness, clock, Security())
            await client.ask()
            clock.advance(SESSION_MS * 85 // 100)

            answers = await asyncio.gather(*(client.ask() for _ in range(20)))

            assert server.logins == 2
            assert {answer and answer.cluster_id for answer in answers} == {"User:admin"}
            clock.advance(SESSION_MS * 84 // 100)  # the first session has ended, the second has not
            answer = await client.ask()
            assert answer is not None
            assert client.connection.state is State.READY
            client.connection.close()

    run(test)


def test_a_wrong_password_ends_what_waits_and_is_a_line_without_it(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        clock = ManualClock()
        server = Server(clock)
        async with serving(server.handle, authenticator=server.authenticator()) as harness:
            harness.clock.advance(1)
            client = Client(harness, clock, Security(password="guessed"))
            answer = client.ask()
            while not answer.done():
                await asyncio.sleep(0)
                harness.clock.advance(1)  # the server answers after its delay

            assert answer.result() is None
            client.connection.close()

    caplog.set_level(logging.INFO)
    run(test)
    assert "login failed: Authentication failed: Invalid username or password" in caplog.text
    assert "guessed" not in caplog.text
