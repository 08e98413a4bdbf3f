"""What a node takes from its network: addresses to accept connections on, and the way out of each connection.

Production listens on sockets; the simulated network has an implementation of its own. Connections and listeners are the same on both.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from broker.loop.clock import Clock
from broker.network.listening_sockets import BACKLOG, ListeningSockets
from broker.network.transport_layer import DescriptorLayer, TransportLayer

SYSTEM_DEFAULT = -1  # a socket buffer's size, left to the system, which tunes it as the connection goes
SEGMENT_BYTES_MIN = 536  # of TCP over IPv4
SEGMENT_BYTES_MAX = 32_767
"""The largest limit that Linux takes for a connection's segments. Those of the loopback interface are of 65,483 bytes by default."""

ProtocolFactory = Callable[[], asyncio.BufferedProtocol]


class SocketOptions(NamedTuple):
    """`backlog` is how many connections the kernel holds before they are accepted; the buffers' sizes are SO_SNDBUF and SO_RCVBUF."""

    backlog: int = BACKLOG
    send_buffer_bytes: int = SYSTEM_DEFAULT
    receive_buffer_bytes: int = SYSTEM_DEFAULT


class Acceptor(Protocol):
    """One address that connections are accepted on. Owned by its listener."""

    @property
    def port(self) -> int:
        """The real one, once bound: a configured port 0 asks for a free one."""

    def bind(self, host: str | None, port: int) -> None:
        """Take the address, without accepting yet; raises ListenError."""

    def listen(self) -> None:
        """The last chance of a refusal, ListenError. Comes right before `start`: connections may arrive from now on."""

    async def start(self, protocol_factory: ProtocolFactory) -> None:
        """Accept connections; each gets a protocol of its own."""

    def stop(self) -> None:
        """Stop accepting and free the address. Connections that are open stay so."""


class Network(Protocol):
    """One node's network."""

    def make_acceptor(self, who: str, options: SocketOptions) -> Acceptor:
        """An acceptor without an address yet. `who` names its listener in errors."""

    def make_layer(self, transport: asyncio.Transport) -> TransportLayer:
        """The way out of a plaintext connection."""

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]) -> tuple[Any, Any]:
        """Open a connection: its transport and its protocol. OSError when it cannot be."""


async def connect_within(
    timeout_ms: int, clock: Clock, network: Network, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]
) -> tuple[Any, Any]:
    """As `network.connect`, but raises TimeoutError, which is an OSError, after `timeout_ms`. If an address is silent, the system itself
    tries for two minutes, and at the end only once a minute: it would notice late that the address answers again."""
    connecting = asyncio.ensure_future(network.connect(host, port, protocol_factory))
    timer = clock.call_later(timeout_ms, connecting.cancel)
    try:
        return await connecting
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise TimeoutError(f"{host}:{port} does not answer") from None
    finally:
        timer.cancel()


class SystemNetwork:
    """This machine's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def make_acceptor(self, who: str, options: SocketOptions) -> Acceptor:
        return SocketAcceptor(self._loop, who, options)

    def make_layer(self, transport: asyncio.Transport) -> TransportLayer:
        return DescriptorLayer(transport, self._loop)

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]) -> tuple[Any, Any]:
        return await self._loop.create_connection(protocol_factory, host, port)


class SocketAcceptor:
    """Sockets (a host name may resolve to several addresses) and the asyncio servers on them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, who: str, options: SocketOptions) -> None:
        self._loop = loop
        self._backlog = options.backlog
        self._buffer_sizes = {
            option: size
            for option, size in ((socket.SO_SNDBUF, options.send_buffer_bytes), (socket.SO_RCVBUF, options.receive_buffer_bytes))
            if size != SYSTEM_DEFAULT
        }
        self._sockets = ListeningSockets(who, configure=self._set_inherited_options)
        self._servers: list[asyncio.Server] = []

    @property
    def port(self) -> int:
        return self._sockets.port

    @property
    def sockets(self) -> list[socket.socket]:
        return self._sockets.sockets

    def bind(self, host: str | None, port: int) -> None:
        self._sockets.bind(host, port)

    def listen(self) -> None:
        self._sockets.listen(self._backlog)

    async def start(self, protocol_factory: ProtocolFactory) -> None:
        for listening in self._sockets.sockets:
            self._servers.append(await self._loop.create_server(protocol_factory, sock=listening, backlog=self._backlog))

    def stop(self) -> None:
        for server in self._servers:
            server.close()
        self._sockets.close()

    def _set_inherited_options(self, listening: socket.socket) -> None:
        """Accepted sockets take these from the listening one; set before it listens, the receive buffer also bounds the window offered.

        Keep-alive, as in Kafka, finds out peers that vanished while a request of theirs is parked, which the idle limit spares.

        A send buffer has to hold two segments: the peer acknowledges every second one at once, a single one after 40 ms, and until then
        the buffer stays full. So a small buffer has segments of half its size, where those of the interface are larger.
        """
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in self._buffer_sizes.items():
            listening.setsockopt(socket.SOL_SOCKET, option, size)
        send_buffer_bytes = self._buffer_sizes.get(socket.SO_SNDBUF)
        if sys.platform == "linux" and send_buffer_bytes is not None and send_buffer_bytes // 2 <= SEGMENT_BYTES_MAX:
            segment_bytes = max(send_buffer_bytes // 2, SEGMENT_BYTES_MIN)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment_bytes)
