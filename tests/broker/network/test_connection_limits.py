"""Limits of connections: who is over them waits unaccepted, and who connects too often is closed after a delay."""

from __future__ import annotations

import asyncio

from broker.network.connection_limits import AT_ONCE, ConnectionLimits, Gate
from broker.network.context import ListenerFacts
from broker.security.quotas.connection_rates import ConnectionRates
from protocol.apis import ListenerKind
from tests.broker.network.harness import framed, run, serving
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

HERE, THERE = "127.0.0.1", "10.0.0.1"


@stands_for(Gate, own=("is_open",))
class NotedGate:
    def __init__(self) -> None:
        self.is_open = True

    def pause(self) -> None:
        self.is_open = False

    def resume(self) -> None:
        self.is_open = True


class Node:
    """Limits of a node with these listeners, the first of which is for connections between brokers."""

    def __init__(self, *names: str, controller: str = "", max_connections: int = 3, max_connections_per_ip: int = 100) -> None:
        self.clock = ManualClock()
        self.closed: list[frozenset[str]] = []
        self.rates = ConnectionRates(window_ms=1000, windows_count=11, inter_broker_listener=names[0])
        self.limits = ConnectionLimits(
            self.clock.call_later,
            self.clock.monotonic_ms,
            self.closed.append,
            max_connections=max_connections,
            max_connections_per_ip=max_connections_per_ip,
            max_connections_of_ip={},
            inter_broker_listener=names[0],
            rates=self.rates,
        )
        self.gates: dict[str, NotedGate] = {}
        for name in (*names, *([controller] if controller else [])):
            gate = self.gates[name] = NotedGate()
            self.limits.add_listener(ListenerFacts(name, ListenerKind.CONTROLLER if name == controller else ListenerKind.CLIENT), gate)

    @property
    def open(self) -> list[str]:
        return [name for name, gate in self.gates.items() if gate.is_open]


def test_a_full_node_accepts_no_clients_until_one_goes() -> None:
    node = Node("INTERNAL", "A", "B")
    for name in ("A", "B", "A"):
        assert node.limits.take(name, HERE) is None

    assert node.open == ["INTERNAL"]
    node.limits.release("B", HERE)

    assert node.open == ["INTERNAL", "A", "B"]


def test_the_listener_of_brokers_takes_an_idle_connection_of_others() -> None:
    node = Node("INTERNAL", "A")
    for _ in range(3):
        node.limits.take("A", HERE)

    assert node.limits.take("INTERNAL", HERE) is None

    assert node.closed == [frozenset({"A"})]


def test_an_only_listener_has_no_privilege() -> None:
    node = Node("INTERNAL")
    for _ in range(3):
        node.limits.take("INTERNAL", HERE)

    assert node.open == []
    assert node.closed == []


def test_controllers_have_a_count_of_their_own() -> None:
    node = Node("A", controller="CONTROLLER")
    for _ in range(3):
        node.limits.take("A", HERE)

    assert node.open == ["CONTROLLER"]


def test_a_listener_has_a_limit_of_its_own() -> None:
    node = Node("INTERNAL", "A", max_connections=100)
    node.limits.set_listener_limit("A", 1)
    node.limits.take("A", HERE)

    assert node.open == ["INTERNAL"]
    node.limits.set_listener_limit("A", 2)

    assert node.open == ["INTERNAL", "A"]


def test_limits_that_grow_let_who_waits_in() -> None:
    node = Node("A")
    for _ in range(3):
        node.limits.take("A", HERE)

    node.limits.set_limits(max_connections=4, max_connections_per_ip=100)

    assert node.open == ["A"]


def test_an_address_with_too_many_is_closed_at_once() -> None:
    node = Node("A", max_connections_per_ip=1)
    node.limits.take("A", HERE)

    assert node.limits.take("A", HERE) == AT_ONCE
    assert node.limits.take("A", THERE) is None


def test_a_listener_over_its_rate_waits_for_what_the_rate_asks() -> None:
    """One a second over ten complete windows: the eleventh at once is one too many, and waits for a second."""
    node = Node("INTERNAL", "A", max_connections=100)
    node.rates.set_listener_limit("A", 1)
    for _ in range(10):
        assert node.limits.take("A", HERE) is None
    assert node.open == ["INTERNAL", "A"]

    node.limits.take("A", HERE)
    assert node.open == ["INTERNAL"]
    node.limits.release("A", HERE)
    assert node.open == ["INTERNAL"]
    node.clock.advance(999)
    assert node.open == ["INTERNAL"]
    node.clock.advance(1)

    assert node.open == ["INTERNAL", "A"]


def test_an_address_over_its_rate_is_closed_after_a_delay_and_counts_nowhere() -> None:
    node = Node("A", max_connections=11)
    node.rates.set_address_limit(HERE, 1)
    for _ in range(10):
        assert node.limits.take("A", HERE) is None

    assert node.limits.take("A", HERE) == 1000
    assert node.open == ["A"]
    assert node.limits.count_from(HERE) == 10


def test_a_stopped_listener_stays_closed() -> None:
    node = Node("A")
    node.rates.set_listener_limit("A", 0.1)
    for _ in range(3):
        node.limits.take("A", HERE)
    node.limits.remove_listener("A")

    node.limits.release("A", HERE)
    node.clock.advance(10_000)

    assert node.open == []
    assert not node.clock.pending_timers


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(b"hello"))
    assert await reader.readexactly(9) == framed(b"hello")


def test_clients_wait_in_the_backlog_and_are_served_in_their_order() -> None:
    async def test() -> None:
        async with serving(max_connections=2) as harness:
            clients = [await harness.connect() for _ in range(6)]
            for _, writer in clients:
                writer.write(framed(b"hello"))
            for reader, writer in clients:
                assert await reader.readexactly(9) == framed(b"hello")
                assert len(harness.registry) <= 2
                writer.close()

    run(test)


def test_of_many_at_once_no_more_are_accepted_than_allowed() -> None:
    async def test() -> None:
        async with serving(max_connections=5) as harness:
            clients = await asyncio.gather(*(harness.connect() for _ in range(50)))
            await ask(*clients[4])

            assert len(harness.registry) == 5

    run(test)


def test_a_connection_over_its_address_s_rate_is_closed_later() -> None:
    async def test() -> None:
        rates = ConnectionRates(window_ms=1000, windows_count=11, inter_broker_listener="")
        rates.set_address_limit(HERE, 0.1)
        async with serving(rates=rates) as harness:
            await harness.connect()
            reader, _ = await harness.connect()
            while not harness.registry.limits.delayed_count:
                await asyncio.sleep(0)
            assert len(harness.registry) == 1
            harness.clock.advance(999)
            assert harness.registry.limits.delayed_count == 1
            harness.clock.advance(1)

            assert await reader.read() == b""
            while harness.registry.limits.delayed_count:
                await asyncio.sleep(0)

    run(test)
