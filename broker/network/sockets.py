"""A node's network: acceptors for its listeners, and the transport layer of each connection.

Production uses sockets; the simulated network is another implementation. Connections and listeners are the same on both.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from broker.loop.clock import Clock
from broker.network.listening_sockets import BACKLOG, ListeningSockets
from broker.network.transport_layer import DescriptorLayer, TransportLayer

SYSTEM_DEFAULT = -1  # a socket buffer's size, left to the system, which tunes it for each connection
RETRY_S = 1.0
"""After which a listener that could not resume tries again."""
SEGMENT_BYTES_MIN = 536  # of TCP over IPv4
SEGMENT_BYTES_MAX = 32_767
"""The largest limit that Linux takes for a connection's segments. Those of the loopback interface are of 65,483 bytes by default."""

SMALL_SEND_BUFFER_BYTES_MAX = 2 * SEGMENT_BYTES_MAX
"""A send buffer up to this size needs smaller segments, which have to be agreed on when a connection begins."""

ProtocolFactory = Callable[[], asyncio.BufferedProtocol]


class SocketOptions(NamedTuple):
    """`backlog` is how many connections the kernel holds before they are accepted; the buffers' sizes are SO_SNDBUF and SO_RCVBUF."""

    backlog: int = BACKLOG
    send_buffer_bytes: int = SYSTEM_DEFAULT
    receive_buffer_bytes: int = SYSTEM_DEFAULT


class Acceptor(Protocol):
    """Accepts connections at one address. Owned by its listener."""

    @property
    def port(self) -> int:
        """The bound port: a configured port 0 asks for a free one."""

    def bind(self, host: str | None, port: int) -> None:
        """Bind the address without accepting yet. Raises ListenError."""

    def listen(self) -> None:
        """Listen; called right before `start`. Connections may arrive from now on. Raises ListenError."""

    async def start(self, protocol_factory: ProtocolFactory) -> None:
        """Accept connections; each gets a new protocol."""

    def pause(self) -> None:
        """Accept nothing until `resume`; who connects waits. Idempotent."""

    def resume(self) -> None:
        """Accept connections again. Idempotent."""

    def stop(self) -> None:
        """Stop accepting and free the address. Open connections stay open."""


class Network(Protocol):
    """One node's network."""

    def make_acceptor(self, who: str, options: SocketOptions) -> Acceptor:
        """Returns an acceptor, which is not bound yet. `who` names its listener in errors."""

    def make_layer(self, transport: asyncio.Transport) -> TransportLayer:
        """Returns the transport layer of a plaintext connection."""

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]) -> tuple[Any, Any]:
        """Open a connection. Returns its transport and its protocol. OSError if it fails."""


async def connect_within(
    timeout_ms: int, clock: Clock, network: Network, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]
) -> tuple[Any, Any]:
    """As `network.connect`, but raises TimeoutError, which is an OSError, after `timeout_ms`. If an address is silent, the system tries
    for two minutes, in the end only once a minute, and would be late to notice that the address answers again. OSError also for what can be
    no host's name."""
    connecting = asyncio.ensure_future(network.connect(host, port, protocol_factory))
    timer = clock.call_later(timeout_ms, connecting.cancel)
    try:
        return await connecting
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise TimeoutError(f"{host}:{port} does not answer") from None
    except UnicodeError as error:
        raise OSError(f"{host!r} is no name of a host: {error}") from error
    finally:
        timer.cancel()


class SystemNetwork:
    """The network of this machine."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def make_acceptor(self, who: str, options: SocketOptions) -> Acceptor:
        return SocketAcceptor(self._loop, who, options)

    def make_layer(self, transport: asyncio.Transport) -> TransportLayer:
        return DescriptorLayer(transport, self._loop)

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], asyncio.BaseProtocol]) -> tuple[Any, Any]:
        return await self._loop.create_connection(protocol_factory, host, port)


def layer_of(transport: asyncio.Transport, network: Network) -> TransportLayer:
    """Returns the sending side of a connection: that of its TLS, else one of `network`."""
    layer: TransportLayer | None = getattr(transport, "layer", None)  # of a TlsTransport, whose module loads OpenSSL
    return network.make_layer(transport) if layer is None else layer


def set_send_buffer(transport: asyncio.BaseTransport, size_bytes: int) -> None:
    """Set SO_SNDBUF of a connection, if it has a socket and the peer has not reset it."""
    connected = transport.get_extra_info("socket")
    if connected is not None:  # the simulated network has none
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size_bytes)


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
        self._protocol_factory: ProtocolFactory | None = None  # while it is started
        self._is_paused = False
        self._opening: asyncio.Task[None] | None = None  # creates the servers again

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
        self._protocol_factory = protocol_factory
        await self._open()

    def pause(self) -> None:
        """uvloop accepts one connection of a socket in each turn of the loop: called at the first of them, this is before the next."""
        self._is_paused = True
        self._close_servers()

    def resume(self) -> None:
        if self._is_paused and self._protocol_factory is not None:
            self._is_paused = False
            if self._opening is None:
                self._opening = self._loop.create_task(self._open())
                self._opening.add_done_callback(self._opened)

    def stop(self) -> None:
        self._is_paused = True
        self._protocol_factory = None
        if self._opening is not None:
            self._opening.cancel()
        self._close_servers()
        self._sockets.close()

    async def _open(self) -> None:
        """Create the servers. Each has a duplicate of its socket, which it closes, so that the socket goes on listening without it."""
        protocol_factory = self._protocol_factory
        for listening in list(self._sockets.sockets):
            if self._is_paused or protocol_factory is None:
                return
            duplicate = listening.dup()
            try:
                server = await self._loop.create_server(protocol_factory, sock=duplicate, backlog=self._backlog)
            except BaseException:
                duplicate.close()
                raise
            self._servers.append(server)
            if self._is_paused:
                self._close_servers()

    def _opened(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        if opening.cancelled() or self._is_paused:
            return
        if opening.exception() is not None:  # no descriptor is left: some will be free again
            self.pause()
            self._loop.call_later(RETRY_S, self.resume)
        elif not self._servers:  # paused and resumed while they were created
            self.pause()
            self.resume()

    def _close_servers(self) -> None:
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()

    def _set_inherited_options(self, listening: socket.socket) -> None:
        """Accepted sockets take these from the listening one; set before it listens, the receive buffer also bounds the window offered.

        Keep-alive, as in Kafka, detects peers that vanished while their request is parked: the idle limit does not apply to these.

        A send buffer has to hold two segments: the peer acknowledges every second one at once, a single one after 40 ms, and until then
        the buffer stays full. So a small buffer has segments of half its size, where those of the interface are larger.
        """
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in self._buffer_sizes.items():
            listening.setsockopt(socket.SOL_SOCKET, option, size)
        send_buffer_bytes = self._buffer_sizes.get(socket.SO_SNDBUF)
        if sys.platform == "linux" and send_buffer_bytes is not None and send_buffer_bytes <= SMALL_SEND_BUFFER_BYTES_MAX:
            segment_bytes = max(send_buffer_bytes // 2, SEGMENT_BYTES_MIN)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment_bytes)
