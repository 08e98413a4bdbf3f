"""Listeners and what all connections share: limits, deadlines, buffers.

Each named listener accepts on its own address; a connection knows its listener, because clients get the broker's address on that same
listener (KIP-103).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from types import MappingProxyType

from broker.loop.clock import Clock, Timer
from broker.loop.cpu_time import CpuMeter, standing_meter
from broker.network.busy_poll import BusyPoll
from broker.network.connection import Connection
from broker.network.connection_interfaces import Authenticator, Handle, Refuse, no_answer
from broker.network.connection_limits import AT_ONCE, ConnectionLimits, Rates
from broker.network.context import ListenerFacts
from broker.network.frame_turn import FrameTurn
from broker.network.listening_sockets import resolve
from broker.network.request_memory import RequestMemory
from broker.network.sockets import Network, SocketOptions
from broker.observability.limited_log import LimitedLog
from protocol.framing import BufferPool

REFUSED_CONNECTIONS = "refused connections"  # a kind of log line
_NO_OVERRIDES: Mapping[str, int] = MappingProxyType({})


def _ignores(listener_name: str, outcome: str) -> None:
    """Nobody counts authentications."""


_DEFAULT_OPTIONS = SocketOptions()
AUTHENTICATION_MS = 10_000  # the default of barnabas.authentication.timeout.ms
SWEEP_INTERVAL_MS = 1_000  # between two checks of the deadlines, which are tens of seconds


class ConnectionRegistry:
    """All open connections of this process. Owns the limits and closes connections that exceed them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        executor: Executor,
        network: Network,
        *,
        max_request_memory: int,
        max_connections: int,
        max_connections_per_ip: int,
        idle_ms: int,
        frame_deadline_ms: int,
        authentication_ms: int = AUTHENTICATION_MS,
        busy_poll_us: int,
        on_count: Callable[[str, int], None],
        on_refused: Callable[[str, str], None],
        on_authentication: Callable[[str, str], None] = _ignores,
        max_connections_of_ip: Mapping[str, int] = _NO_OVERRIDES,
        inter_broker_listener: str = "",
        rates: Rates | None = None,
        cpu_meter: CpuMeter | None = None,
    ) -> None:
        self.log = LimitedLog(logging.getLogger("barnabas.network"), clock)
        self.loop = loop
        self.executor = executor
        self.network = network
        self.pool = BufferPool()
        self.memory = RequestMemory(max_request_memory, loop.call_soon_threadsafe)
        self.frame_turn = FrameTurn(loop.call_soon, clock.monotonic_ns)
        self.busy_poll = BusyPoll(loop, clock, busy_poll_us) if busy_poll_us else None
        self.cpu_meter = cpu_meter or standing_meter()
        self.monotonic_ns = clock.monotonic_ns
        self.monotonic_ms = clock.monotonic_ms
        self.call_later = clock.call_later
        self.limits = ConnectionLimits(
            clock.call_later,
            clock.monotonic_ms,
            self._close_idlest,
            max_connections=max_connections,
            max_connections_per_ip=max_connections_per_ip,
            max_connections_of_ip=max_connections_of_ip,
            inter_broker_listener=inter_broker_listener,
            rates=rates,
        )
        self._idle_ms = idle_ms
        self._frame_deadline_ms = frame_deadline_ms
        self._authentication_ms = authentication_ms
        self.on_refused = on_refused  # called with (API name, property) for a request beyond a limit, for the metrics
        self.on_authentication = on_authentication  # called with (listener name, what came of it), for the metrics
        self._on_count = on_count  # called with (listener name, +1 or -1), for the metrics
        self._connections: dict[Connection, None] = {}  # a dict for its order: closing goes oldest first
        self._turned_away: dict[Connection, None] = {}  # those that are closed after a delay
        self._next_connection_id = 1
        self._sweep_timer: Timer | None = clock.call_later(SWEEP_INTERVAL_MS, self._sweep)

    def __len__(self) -> int:
        return len(self._connections)

    def admit(self, connection: Connection) -> int | None:
        """Count `connection` and number it. Returns None, or that the limits let it not in: after how many ms it must be closed."""
        host, listener = connection.facts.client_host, connection.facts.listener
        delay_ms = self.limits.take(listener.name, host)
        if delay_ms is not None:
            if delay_ms > AT_ONCE:
                self._turned_away[connection] = None
                self.limits.delayed_count += 1
            else:
                self.log.warning(
                    REFUSED_CONNECTIONS,
                    "refusing connection client=%s listener=%s open=%d from_client=%d",
                    host,
                    listener.name,
                    len(self._connections),
                    self.limits.count_from(host),
                )
            return delay_ms
        connection.facts.connection_id = self._next_connection_id
        self._next_connection_id += 1
        connection.last_active_ms = self.monotonic_ms()
        self._connections[connection] = None
        self._on_count(listener.name, 1)
        return None

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection. Does nothing for one that was refused at once."""
        listener_name = connection.facts.listener.name
        if self._connections.pop(connection, True) is None:
            self._on_count(listener_name, -1)
            self.limits.release(listener_name, connection.facts.client_host)
        elif self._turned_away.pop(connection, True) is None:
            self.limits.delayed_count -= 1

    def _close_idlest(self, listener_names: frozenset[str]) -> None:
        """Close the connection of these listeners that was idle longest, one that waits for an answer only if all do."""
        candidates = [each for each in self._connections if each.facts.listener.name in listener_names]
        if candidates:
            idlest = min(candidates, key=lambda each: (each.is_busy, each.last_active_ms))
            idlest.close("the listener of brokers needs its place")

    def close(self) -> None:
        """Close every connection, oldest first, and stop sweeping."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for connection in list(self._connections):
            connection.close("broker is stopping")
        for connection in list(self._turned_away):
            connection.turn_away(AT_ONCE)

    def _sweep(self) -> None:
        """Close connections that were idle for connections.max.idle.ms, whose frame is not complete by the frame deadline, who are not
        authenticated by theirs, or whose peer has reset them while they were not read."""
        now = self.monotonic_ms()
        self.memory.sweep()
        for connection in list(self._connections):
            if now - connection.last_active_ms >= self._idle_ms and not connection.is_busy:
                connection.close("idle")
            elif (
                connection.partial_since_ms is not None
                and not connection.is_muted
                and now - connection.partial_since_ms >= self._frame_deadline_ms
                and not connection.is_busy
            ):
                connection.close("frame not completed in time")
            elif connection.authenticating_since_ms is not None and now - connection.authenticating_since_ms >= self._authentication_ms:
                connection.authentication_failed("not authenticated in time")
            elif connection.is_deserted:
                connection.close("connection reset by peer")
        self._sweep_timer = self.call_later(SWEEP_INTERVAL_MS, self._sweep)


Secure = Callable[[Connection], asyncio.BufferedProtocol]
"""Puts TLS before a connection: returns the protocol of the plain transport."""


class Listener:
    """One named listener: where it accepts connections, who may connect, and what they are served."""

    def __init__(
        self,
        facts: ListenerFacts,
        registry: ConnectionRegistry,
        options: SocketOptions = _DEFAULT_OPTIONS,
        *,
        authenticator: Authenticator[Connection] | None = None,
        secure: Secure | None = None,
    ) -> None:
        self.facts = facts
        self._authenticator = authenticator
        self._secure = secure
        self._registry = registry
        self._acceptor = registry.network.make_acceptor(f"listener {facts.name}", options)
        registry.limits.add_listener(facts, self._acceptor)

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def port(self) -> int:
        """The bound port: a configured port 0 asks the kernel for a free one."""
        return self._acceptor.port

    def bind(self, host: str | None, port: int) -> None:
        """Bind the address without accepting yet. Raises ListenError."""
        self._acceptor.bind(host, port)

    def listen(self) -> None:
        """Listen; called right before `start`. From now on the kernel accepts connections. Raises ListenError."""
        self._acceptor.listen()

    async def start(self, handle: Handle, refuse: Refuse = no_answer) -> None:
        """Serve the connections; `handle` runs their requests, `refuse` answers those of who is not logged in."""
        registry, facts, authenticator, secure = self._registry, self.facts, self._authenticator, self._secure

        def accept() -> asyncio.BufferedProtocol:
            connection = Connection(registry, facts, handle, authenticator, refuse)
            return connection if secure is None else secure(connection)

        await self._acceptor.start(accept)
        registry.limits.start(facts.name)

    def stop(self) -> None:
        """Stop accepting and free the addresses; the registry closes open connections."""
        self._registry.limits.remove_listener(self.name)
        self._acceptor.stop()


def limits_by_address(limits: Mapping[str, int]) -> dict[str, int]:
    """Converts limits by host to limits by address, in the form of the connections' addresses. Blocks. Raises ListenError."""
    return {address: limit for host, limit in limits.items() for _, address in resolve(host, 0)}
