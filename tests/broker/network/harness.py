"""A listener with its registry on a free port, for tests over real sockets: the handler and the limits are the test's."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from broker.network.context import ConnectionFacts, ListenerFacts
from broker.network.listeners import ConnectionRegistry, Listener, Secure
from broker.network.sockets import SocketOptions, SystemNetwork
from protocol.apis import ListenerKind
from tests.support.clock import ManualClock


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def echo(frame: memoryview, facts: ConnectionFacts) -> Any:
    return [framed(bytes(frame))]


def run(test: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), 20))


class Harness:
    """A listener on a free port with a handler of the test's choosing."""

    def __init__(self, handle: Any, listener: dict[str, int], **limits: Any) -> None:
        self.clock = ManualClock()
        authenticator, self._make_secure = limits.pop("authenticator", None), limits.pop("make_secure", None)
        facts = ListenerFacts(
            "PLAINTEXT",
            limits.pop("kind", ListenerKind.CLIENT),
            max_frame_size=limits.pop("max_frame_size", 1 << 20),
            max_connections=limits.pop("max_connections_of_listener", 1_000),
            send_buffer_bytes=limits.pop("consumers_send_buffer_bytes", -1),
        )
        self.executor = ThreadPoolExecutor(1)
        settings = {
            "max_request_memory": 1 << 30,
            "max_connections": 100,
            "max_connections_per_ip": 100,
            "idle_ms": 600_000,
            "frame_deadline_ms": 30_000,
            "busy_poll_us": 0,
        }
        self.registry = ConnectionRegistry(
            asyncio.get_running_loop(),
            self.clock,
            self.executor,
            SystemNetwork(asyncio.get_running_loop()),
            on_count=lambda name, change: None,
            on_refused=lambda api_name, limit: None,
            **(settings | limits),
        )
        self._handle = handle
        self._authenticator = authenticator
        self._options = SocketOptions(**listener)
        self._facts = facts
        self._listeners: list[Listener] = []

    async def start(self) -> None:
        self.listener = await self._listen(self._facts)

    async def listen_as(self, name: str) -> Listener:
        """Another listener with the same limits."""
        return await self._listen(self._facts._replace(name=name))

    async def _listen(self, facts: ListenerFacts) -> Listener:
        listener = Listener(facts, self.registry, self._options, authenticator=self._authenticator, secure=self._secure())
        self._listeners.append(listener)
        listener.bind("127.0.0.1", 0)
        listener.listen()
        await listener.start(self._handle)
        return listener

    def _secure(self) -> Secure | None:
        """Of a test's `make_secure(registry)`: what puts TLS before the connections."""
        return None if self._make_secure is None else self._make_secure(self.registry)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.port)

    def stop(self) -> None:
        self.registry.close()
        for listener in self._listeners:
            listener.stop()
        self.executor.shutdown()


@asynccontextmanager
async def serving(handle: Any = echo, listener: dict[str, int] | None = None, **limits: Any) -> AsyncIterator[Harness]:
    harness = Harness(handle, listener or {}, **limits)
    await harness.start()
    try:
        yield harness
    finally:
        harness.stop()
