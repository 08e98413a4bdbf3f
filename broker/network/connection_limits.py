"""ConnectionLimits: how many connections there may be, by node, listener and address, and how fast new ones may come.

A listener that is at its limit, or whose node is, accepts nothing until there is room: clients that come then wait in the kernel's backlog,
as in Kafka. So does a listener that is over max.connection.creation.rate. A connection from an address that has too many is closed at once;
from one that connects too often it is closed after a delay.

The limit of a node counts for the listeners of one kind together, because Kafka's controllers and brokers have servers of their own. Rates
are limited for clients' listeners only. The listener for connections between brokers, if it is not the only one of brokers, is not bound by
the node's limit; what it is over costs an idle connection of another listener.

A connection is accepted before its listener can be paused, so a limit may be exceeded by one connection for each listening socket.

Source: kafka.network.ConnectionQuotas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from broker.loop.clock import Timer
from broker.network.context import ListenerFacts
from protocol.apis import ListenerKind

AT_ONCE = 0
DELAYED_CLOSES_MAX = 1_000
"""Connections that wait to be closed, because their addresses connect too often; more are closed at once. Kafka has no bound."""


class Gate(Protocol):
    """The accepting side of a listener."""

    def pause(self) -> None:
        """Accept nothing until `resume`; the sockets go on listening. Idempotent."""

    def resume(self) -> None:
        """Accept again. Idempotent."""


class Rates(Protocol):
    """The part of ConnectionRates that is used here."""

    is_enabled: bool

    def add_listener(self, name: str) -> None: ...

    def record(self, listener_name: str, now_ms: int) -> int: ...

    def record_address(self, listener_name: str, address: str, now_ms: int) -> int: ...


class _Listener:
    __slots__ = ("count", "gate", "is_protected", "kind", "max_connections", "timer")

    def __init__(self, kind: ListenerKind, gate: Gate, max_connections: int) -> None:
        self.kind = kind
        self.gate = gate
        self.max_connections = max_connections
        self.is_protected = False
        self.count = 0
        self.timer: Timer | None = None  # while it waits because of its rate


class ConnectionLimits:
    """Counts connections, and pauses and resumes the listeners. `close_idlest` closes the connection of the named listeners that was idle
    longest. `rates` is None where no rate is limited."""

    def __init__(
        self,
        call_later: Callable[..., Timer],
        monotonic_ms: Callable[[], int],
        close_idlest: Callable[[frozenset[str]], None],
        *,
        max_connections: int,
        max_connections_per_ip: int,
        max_connections_of_ip: Mapping[str, int],
        inter_broker_listener: str = "",
        rates: Rates | None = None,
    ) -> None:
        self._call_later = call_later
        self._monotonic_ms = monotonic_ms
        self._close_idlest = close_idlest
        self._max_connections = max_connections
        self._max_connections_per_ip = max_connections_per_ip
        self._max_connections_of_ip = max_connections_of_ip
        self._inter_broker_listener = inter_broker_listener
        self._rates = rates
        self._listeners: dict[str, _Listener] = {}
        self._totals: Counter[ListenerKind] = Counter()
        self._per_ip: Counter[str] = Counter()
        self.delayed_count = 0

    def add_listener(self, facts: ListenerFacts, gate: Gate) -> None:
        """Called before the listener accepts connections."""
        self._listeners[facts.name] = _Listener(facts.kind, gate, facts.max_connections)
        if self._rates is not None and facts.kind is ListenerKind.CLIENT:
            self._rates.add_listener(facts.name)
        clients = [name for name, each in self._listeners.items() if each.kind is ListenerKind.CLIENT]
        for name in clients:
            self._listeners[name].is_protected = name == self._inter_broker_listener and len(clients) > 1

    def remove_listener(self, name: str) -> None:
        """Called when it accepts no more. Its open connections go on counting."""
        listener = self._listeners.get(name)
        if listener is not None:
            if listener.timer is not None:
                listener.timer.cancel()
                listener.timer = None
            listener.gate = _CLOSED

    def start(self, name: str) -> None:
        """Called when the listener accepts connections: it stops at once if there is no room."""
        self._adjust(self._listeners[name])

    def set_limits(self, *, max_connections: int, max_connections_per_ip: int) -> None:
        """Set the limits for new connections; open ones stay."""
        self._max_connections = max_connections
        self._max_connections_per_ip = max_connections_per_ip
        self._adjust_all()

    def set_listener_limit(self, name: str, max_connections: int) -> None:
        self._listeners[name].max_connections = max_connections
        self._adjust_all()

    def count_from(self, host: str) -> int:
        """Returns how many connections an address has."""
        return self._per_ip[host]

    def take(self, name: str, host: str) -> int | None:
        """Count a connection that was accepted. Returns None, or that it must be closed: AT_ONCE, or after that many ms. It is not counted
        then; the caller adds those that it delays to `delayed_count`."""
        listener = self._listeners[name]
        if self._rates is not None and self._rates.is_enabled and listener.kind is ListenerKind.CLIENT:
            now_ms = self._monotonic_ms()
            wait_ms = self._rates.record(name, now_ms)
            if wait_ms:
                self._wait(listener, wait_ms)
            delay_ms = self._rates.record_address(name, host, now_ms)
            if delay_ms:
                return delay_ms if self.delayed_count < DELAYED_CLOSES_MAX else AT_ONCE
        if self._per_ip[host] >= self._max_connections_of_ip.get(host, self._max_connections_per_ip):
            return AT_ONCE
        self._per_ip[host] += 1
        listener.count += 1
        self._totals[listener.kind] += 1
        if listener.is_protected and self._totals[listener.kind] > self._max_connections:
            others = [each for each, found in self._listeners.items() if found.kind is listener.kind and not found.is_protected]
            self._close_idlest(frozenset(others))
        self._adjust_all()
        return None

    def release(self, name: str, host: str) -> None:
        """A connection that was counted has ended."""
        self._per_ip[host] -= 1
        if self._per_ip[host] <= 0:
            del self._per_ip[host]
        listener = self._listeners[name]
        listener.count -= 1
        self._totals[listener.kind] -= 1
        self._adjust_all()

    def _wait(self, listener: _Listener, wait_ms: int) -> None:
        if listener.timer is not None:
            listener.timer.cancel()
        listener.timer = self._call_later(wait_ms, self._waited, listener)
        listener.gate.pause()

    def _waited(self, listener: _Listener) -> None:
        listener.timer = None
        self._adjust(listener)

    def _adjust_all(self) -> None:
        for listener in self._listeners.values():
            self._adjust(listener)

    def _adjust(self, listener: _Listener) -> None:
        has_room = listener.count < listener.max_connections and (
            listener.is_protected or self._totals[listener.kind] < self._max_connections
        )
        if has_room and listener.timer is None:
            listener.gate.resume()
        else:
            listener.gate.pause()


class _Closed:
    """The gate of a listener that has stopped."""

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass


_CLOSED = _Closed()
