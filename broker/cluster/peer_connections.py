"""PeerConnections: this node's connections to other nodes, one for each address, opened at the first request.

Requests on one connection are answered in order. A sender that must not wait behind another's requests needs its own PeerConnections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from broker.network.client import PeerConnection
from protocol.framing import BufferPool

if TYPE_CHECKING:
    from broker.network.peer_login import PeerSecurity
    from broker.network.peer_traffic import PeerTraffic
    from broker.platform import Platform

MakeConnection = Callable[[str, int, Callable[[Awaitable[Any]], None]], PeerConnection]
"""Makes a connection to a host and port, given what runs the connection's tasks."""


def connection_maker(
    platform: Platform,
    pool: BufferPool,
    *,
    client_id: str,
    request_timeout_ms: int,
    connect_timeouts_ms: tuple[int, int],
    max_frame_size: int,
    in_flight_max: int,
    security: PeerSecurity | None,
    traffic: PeerTraffic | None = None,
) -> MakeConnection:
    """Returns a function that opens connections with these limits."""

    def make(host: str, port: int, run_in_background: Callable[[Awaitable[Any]], None]) -> PeerConnection:
        return PeerConnection(
            host,
            port,
            client_id=client_id,
            network=platform.network,
            loop=platform.loop,
            executor=platform.executor,
            clock=platform.clock,
            pool=pool,
            run_in_background=run_in_background,
            request_timeout_ms=request_timeout_ms,
            max_frame_size=max_frame_size,
            in_flight_max=in_flight_max,
            connect_timeouts_ms=connect_timeouts_ms,
            security=security,
            traffic=traffic,
        )

    return make


class PeerConnections:
    """Owns the connections and their tasks."""

    def __init__(self, make: MakeConnection) -> None:
        self._make = make
        self._connections: dict[tuple[str, int], PeerConnection] = {}
        self.on_ended: Callable[[str, int], None] = lambda host, port: None
        """Called when an established connection to that address has ended, unless this node closed it."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def get(self, host: str, port: int) -> PeerConnection:
        """The connection to that address."""
        connection = self._connections.get((host, port))
        if connection is None:
            connection = self._connections[host, port] = self._make(host, port, self._run)
            connection.on_lost = lambda: self.on_ended(host, port)
        return connection

    def drop(self, host: str, port: int) -> None:
        """Close the connection to that address, if there is one. Unanswered requests get None. The next request opens another
        connection."""
        connection = self._connections.pop((host, port), None)
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """Close all connections now. Unanswered requests get None."""
        for connection in self._connections.values():
            connection.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _run(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
