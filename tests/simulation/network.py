"""A simulated network: hosts, listeners and byte streams with drawn latencies, cuts and resets.

Each direction of a connection is a first-in-first-out stream of chunks: what is written is split and merged at random boundaries and
arrives after a drawn latency. Connections are not ordered among each other. A stream keeps at most WINDOW_BYTES under way, so a peer
that does not read stops its sender, as TCP does.

A cut link holds what is under way and delivers it after the heal, as retransmission would. A killed process resets its connections; a
host without power answers nothing, and its peers learn only by their own timeouts or once it is back.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import deque
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

from tests.simulation.loop import Life, SimulatedLoop, current_life

WINDOW_BYTES = 64 * 1024
WRITE_HIGH_BYTES = 64 * 1024  # above it `pause_writing` is called, at a quarter `resume_writing`
RETRANSMISSION_S = 0.2
LATENCY_MIN_S, LATENCY_MEAN_S = 0.000_050, 0.000_300
SLOW_SHARE, SLOW_FACTOR = 0.01, 50  # one chunk in a hundred waits for a queue somewhere
SPLIT_SHARE = 0.3  # of the chunks arrive in pieces
TICK_S = 0.000_000_1  # between two arrivals: timers due at one moment have no order
SEGMENT_BYTES = 16 * 1024
CONNECT_TIMEOUT_S = 10.0
FIRST_EPHEMERAL_PORT = 40_000


class SimulatedNetwork:
    """All hosts and links. `random_source` is this network's own stream of numbers."""

    def __init__(self, loop: SimulatedLoop, random_source: random.Random) -> None:
        self.loop = loop
        self.random = random_source
        self._listeners: dict[tuple[str, int], tuple[Life | None, Callable[[], Any]]] = {}
        self._silent_hosts: dict[str, None] = {}
        self._closed_ports: dict[tuple[str, int], None] = {}
        self._cut_links: dict[tuple[str, str], None] = {}  # (from, to)
        self._transports: dict[SimulatedTransport, None] = {}
        self._next_port = FIRST_EPHEMERAL_PORT
        self.slowness = 1.0  # how many times longer everything takes
        self.heals_count = 0  # of links that were cut, and of hosts that were silent

    # -- what nodes and clients call -------------------------------------------------------------------------------

    def listen(self, host: str, port: int, protocol_factory: Callable[[], Any]) -> int:
        """Accept on the address from now on; returns the port, a free one for port 0. OSError when it is taken."""
        if port == 0:
            port = self.draw_port()
        if (host, port) in self._listeners:
            raise OSError(98, "Address already in use")
        self._listeners[host, port] = (current_life(), protocol_factory)
        return port

    def stop_listening(self, host: str, port: int) -> None:
        self._listeners.pop((host, port), None)

    async def connect(self, from_host: str, host: str, port: int, protocol_factory: Callable[[], Any]) -> tuple[SimulatedTransport, Any]:
        """A connection from `from_host`. ConnectionRefusedError when nobody listens, TimeoutError when nothing answers."""
        deadline_s = self.loop.time() + CONNECT_TIMEOUT_S
        await asyncio.sleep(self.draw_latency_s())
        while not self.is_open(from_host, host) or not self.is_open(host, from_host):
            if self.loop.time() >= deadline_s:
                raise TimeoutError(f"connect to {host}:{port} timed out")
            await asyncio.sleep(min(1.0, deadline_s - self.loop.time()))
        found = self._listeners.get((host, port))
        if found is None or (host, port) in self._closed_ports:
            self.loop.note("refused", f"{from_host} -> {host}:{port}")
            raise ConnectionRefusedError(111, f"connect to {host}:{port} refused")
        life, server_factory = found
        address = (from_host, self.draw_port())
        client = SimulatedTransport(self, current_life(), address, (host, port))
        server = SimulatedTransport(self, life, (host, port), address)
        client.peer, server.peer = server, client
        self._transports[client] = self._transports[server] = None
        self.loop.note("connect", f"{from_host} -> {host}:{port}")
        server.begin(server_factory)
        protocol = client.begin(protocol_factory, is_here=True)
        return client, protocol

    # -- faults ----------------------------------------------------------------------------------------------------

    def is_open(self, source: str, target: str) -> bool:
        if not self._cut_links and not self._silent_hosts:
            return True
        return (source, target) not in self._cut_links and source not in self._silent_hosts and target not in self._silent_hosts

    def has_under_way(self, source: str, target: str, port: int) -> bool:
        """Whether something of `source` is on its way to that port of `target`."""
        places = ((transport.local[0], transport.remote, transport.under_way_size) for transport in self._transports)
        return any(host == source and remote == (target, port) and size > 0 for host, remote, size in places)

    def cut(self, source: str, target: str) -> None:
        """Nothing from `source` reaches `target` until `heal`; what is under way waits."""
        self._cut_links[source, target] = None
        self.loop.note("cut", f"{source} -> {target}")

    def heal(self, source: str, target: str) -> None:
        if self._cut_links.pop((source, target), True) is None:
            self.loop.note("heal", f"{source} -> {target}")
            self._go_on()

    def heal_all(self) -> None:
        self._cut_links.clear()
        self.loop.note("heal", "all")
        self._go_on()

    def reset_between(self, first: str, second: str) -> None:
        """Reset every connection between two hosts, as a firewall that lost its table does."""
        for transport in list(self._transports):
            if (transport.local[0], transport.remote[0]) == (first, second):
                self.loop.note("reset", f"{first} <-> {second}")
                transport.reset(ConnectionResetError(104, "Connection reset by peer"))

    def close_port(self, host: str, port: int) -> None:
        """Refuse new connections to the address, as if its process were gone; those that are open stay."""
        self._closed_ports[host, port] = None

    def open_port(self, host: str, port: int) -> None:
        self._closed_ports.pop((host, port), None)

    def process_died(self, host: str, *, is_silent: bool) -> None:
        """Close what the host's process had open. `is_silent`: the host itself is gone and nobody is told until `host_is_back`."""
        for address in [address for address in self._listeners if address[0] == host]:
            del self._listeners[address]
        if is_silent:
            self._silent_hosts[host] = None
        for transport in list(self._transports):
            if transport.local[0] == host:
                transport.vanish()

    def host_is_back(self, host: str) -> None:
        """The host answers again: to what belongs to connections from before, with a reset."""
        if self._silent_hosts.pop(host, True) is None:
            self._go_on()

    # -- inside ----------------------------------------------------------------------------------------------------

    def draw_latency_s(self) -> float:
        latency_s = (LATENCY_MIN_S + self.random.expovariate(1 / LATENCY_MEAN_S)) * self.slowness
        return latency_s * SLOW_FACTOR if self.random.random() < SLOW_SHARE else latency_s

    def forget(self, transport: SimulatedTransport) -> None:
        self._transports.pop(transport, None)

    def draw_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def _go_on(self) -> None:
        self.heals_count += 1
        for transport in list(self._transports):
            transport.pump()


def numeric(host: str) -> str:
    """The address of a host, of 198.18.0.0/15 (RFC 2544): a peer's is never a name."""
    return str(IPv4Address(0xC612_0000 | zlib.crc32(host.encode()) & 0x1_FFFF))


class SimulatedTransport(asyncio.Transport):
    """One end of a connection. Writes what its protocol sends into the stream to `peer`, and delivers what the peer sent."""

    peer: SimulatedTransport

    def __init__(self, network: SimulatedNetwork, life: Life | None, local: tuple[str, int], remote: tuple[str, int]) -> None:
        super().__init__()
        self._network = network
        self._loop = network.loop
        self._life = life
        self.local = local
        self.remote = remote
        self._protocol: Any = None
        self._is_reading = True
        self._is_closing = False  # no more is written; what is queued still leaves
        self._is_lost = False  # connection_lost was, or will be, called
        self._is_vanished = False  # its process died
        self._unsent: deque[memoryview] = deque()
        self._unsent_size = 0
        self._ends = False  # an end of stream follows what is unsent
        self._is_writing_paused = False
        self.under_way_size = 0
        self._arrives_s = 0.0  # no chunk arrives before the one ahead of it
        self._lost_on_the_way: deque[bytes | None] = deque()
        self._received: deque[bytes | None] = deque()  # arrived and not read; None: the end of the stream
        self._is_delivering = False

    # -- asyncio's interface ---------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        address = {"peername": self.remote, "sockname": self.local}.get(name)
        return default if address is None else (numeric(address[0]), address[1])

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[no-any-return]

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._deliver_soon()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._is_lost or not data:
            return
        self._unsent.append(memoryview(bytes(data)))
        self._unsent_size += len(data)
        self.pump()
        if self._unsent_size > WRITE_HIGH_BYTES and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._unsent_size

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._ends = True
        self.pump()

    def close(self) -> None:
        """Send what is queued, then the end of the stream."""
        if not self._is_closing:
            self._is_closing = True
            self._ends = True
            self.pump()
            if not self._unsent and not self._is_lost:
                self._lose(None)

    def abort(self) -> None:
        """Drop what is queued; the peer sees a reset."""
        if not self._is_lost:
            self._is_closing = True
            self._clear()
            self._lose(None)
            self._tell_peer_of_reset()

    # -- the network's side ----------------------------------------------------------------------------------------

    def begin(self, protocol_factory: Callable[[], Any], *, is_here: bool = False) -> Any:
        """Make the protocol and tell it of its connection: at once, or as a callback of the node that accepts."""
        if is_here:
            self._protocol = protocol_factory()
            self._protocol.connection_made(self)
            return self._protocol

        def accept() -> None:
            self._protocol = protocol_factory()
            self._protocol.connection_made(self)
            self._deliver_soon()

        self._loop.call_in(self._life, accept)
        return None

    def pump(self) -> None:
        """Put as much under way as the peer's window has room for."""
        network = self._network
        if self._is_vanished or not network.is_open(self.local[0], self.remote[0]):
            return
        while self._unsent and self.under_way_size < WINDOW_BYTES:
            chunk = self._unsent.popleft()
            if len(chunk) > SEGMENT_BYTES:
                self._unsent.appendleft(chunk[SEGMENT_BYTES:])
                chunk = chunk[:SEGMENT_BYTES]
            for piece in self._draw_pieces(bytes(chunk)):
                self._unsent_size -= len(piece)
                self.under_way_size += len(piece)
                self._launch(self.peer.arrive, piece)
        if self._ends and not self._unsent:
            self._ends = False
            self._launch(self.peer.arrive, None)
        if self._is_writing_paused and self._unsent_size <= WRITE_HIGH_BYTES // 4:
            self._is_writing_paused = False
            self._loop.call_in(self._life, self._protocol.resume_writing)
        if self._is_closing and not self._unsent and not self._is_lost:
            self._lose(None)

    def arrive(self, chunk: bytes | None) -> None:
        """A chunk, or the end of the stream, has come through the network, or is lost on its way and will be sent again, in its order."""
        if self._lost_on_the_way or not self._network.is_open(self.remote[0], self.local[0]):
            self._lost_on_the_way.append(chunk)
            if len(self._lost_on_the_way) == 1:
                self._loop.call_in_later(None, RETRANSMISSION_S, self._retransmit)
            return
        self._take(chunk)

    def _retransmit(self) -> None:
        """What was lost comes after all if the link is open again."""
        if not self._network.is_open(self.remote[0], self.local[0]):
            self._loop.call_in_later(None, RETRANSMISSION_S, self._retransmit)
            return
        while self._lost_on_the_way:
            self._take(self._lost_on_the_way.popleft())

    def _take(self, chunk: bytes | None) -> None:
        if self._is_vanished or self._is_lost:
            self.peer.window_grew(len(chunk or b""))
            if not self.peer._is_lost:
                self._tell_peer_of_reset()
            return
        self._received.append(chunk)
        if self._is_reading and not self._is_delivering and self._protocol is not None:
            self._is_delivering = True
            self._loop.run_in(self._life, self._deliver)

    def window_grew(self, size: int) -> None:
        self.under_way_size -= size
        self.pump()

    def reset(self, error: Exception) -> None:
        """The connection is gone; the protocol learns it at once, the peer when its reset arrives."""
        if not self._is_lost:
            self._is_closing = True
            self._clear()
            self._lose(error)

    def vanish(self) -> None:
        """The process died. Its host, if it has power, resets the connection."""
        if self._is_vanished:
            return
        self._is_vanished = True
        was_lost, self._is_lost = self._is_lost, True
        self._clear()
        self._network.forget(self)
        if not was_lost:
            self._tell_peer_of_reset()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _draw_pieces(self, chunk: bytes) -> list[bytes]:
        draw = self._network.random
        if len(chunk) < 2 or draw.random() >= SPLIT_SHARE:
            return [chunk]
        cut = draw.randrange(1, len(chunk))
        return [chunk[:cut], chunk[cut:]]

    def _launch(self, arrive: Callable[[bytes | None], None], chunk: bytes | None) -> None:
        """Let a chunk arrive after its latency, never before what left earlier."""
        self._arrives_s = max(self._arrives_s + TICK_S, self._loop.time() + self._network.draw_latency_s())
        self._loop.call_in_at(None, self._arrives_s, arrive, chunk)

    def _deliver_soon(self) -> None:
        if self._received and self._is_reading and not self._is_delivering and self._protocol is not None:
            self._is_delivering = True
            self._loop.call_in(self._life, self._deliver)

    def _deliver(self) -> None:
        """Hand what has arrived to the protocol, chunk by chunk, as long as it reads."""
        self._is_delivering = False
        while self._received and self._is_reading and not self._is_lost:
            chunk = self._received.popleft()
            if chunk is None:
                if not self._protocol.eof_received() and not self._is_lost:
                    self.close()
                return
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                rest = self._fill_buffer(chunk)
                if rest:
                    self._received.appendleft(rest)
            else:
                rest = b""
                self._protocol.data_received(chunk)
            self.peer.window_grew(len(chunk) - len(rest))

    def _fill_buffer(self, chunk: bytes) -> bytes:
        """Returns what did not fit."""
        buffer = self._protocol.get_buffer(-1)
        size = min(len(chunk), len(buffer))
        buffer[:size] = chunk[:size]
        self._protocol.buffer_updated(size)
        return chunk[size:]

    def _lose(self, error: Exception | None) -> None:
        self._is_lost = True
        self._network.forget(self)
        if self._protocol is not None:
            self._loop.call_in(self._life, self._protocol.connection_lost, error)

    def _tell_peer_of_reset(self) -> None:
        """A reset travels as data does, and is lost where nothing gets through: the peer then learns nothing."""
        peer = self.peer
        if self._network.is_open(self.local[0], self.remote[0]) and not peer._is_lost:
            self._launch(lambda _: peer.reset(ConnectionResetError(104, "Connection reset by peer")), None)

    def _clear(self) -> None:
        self._unsent.clear()
        self._unsent_size = 0
        self._received.clear()
