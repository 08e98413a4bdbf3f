"""Addresses to listen on: refused in one line, whenever the refusal comes, and the same port on each of a host's addresses."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from broker.network import listening_sockets
from broker.network.listening_sockets import ListenError, ListeningSockets
from tests.support.process import free_port

BOTH_LOOPBACKS = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="needs IPv6: this machine has no ::1")


@pytest.fixture
def sockets() -> Iterator[ListeningSockets]:
    made = ListeningSockets("listener A")
    yield made
    made.close()


@pytest.fixture
def others() -> Iterator[ListeningSockets]:
    made = ListeningSockets("listener B")
    yield made
    made.close()


@pytest.fixture
def localhost_is_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening_sockets, "resolve", lambda host, port: BOTH_LOOPBACKS)


def test_two_that_bound_one_port_cannot_both_listen(sockets: ListeningSockets, others: ListeningSockets) -> None:
    """SO_REUSEADDR lets both bind, as two brokers do that start at once."""
    port = free_port()
    sockets.bind("127.0.0.1", port)
    others.bind("127.0.0.1", port)
    sockets.listen()

    with pytest.raises(ListenError, match=f"^listener B: can't listen on 127.0.0.1:{port}: Address already in use$"):
        others.listen()


def test_nothing_is_accepted_before_it_listens(sockets: ListeningSockets) -> None:
    sockets.bind("127.0.0.1", 0)

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", sockets.port), timeout=5)


def test_closing_frees_the_address(sockets: ListeningSockets, others: ListeningSockets) -> None:
    sockets.bind("127.0.0.1", 0)
    sockets.listen()
    port = sockets.port

    sockets.close()
    others.bind("127.0.0.1", port)
    others.listen()

    assert others.port == port


@needs_ipv6
@pytest.mark.parametrize("taken", ["127.0.0.1", "::1"])
def test_a_port_that_is_taken_on_one_of_the_addresses_is_refused(sockets: ListeningSockets, localhost_is_both: None, taken: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in taken else socket.AF_INET) as other:
        other.bind((taken, 0))
        other.listen()
        port = other.getsockname()[1]

        with pytest.raises(ListenError, match=f"^listener A: can't listen on localhost:{port}: Address already in use$"):
            sockets.bind("localhost", port)

    assert sockets.sockets == []


@needs_ipv6
def test_port_0_is_one_port_on_all_addresses(sockets: ListeningSockets, localhost_is_both: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the port that the kernel chose for the first address is taken on the second."""
    with socket.socket(socket.AF_INET6) as other:
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        other.bind(("::1", 0))
        other.listen()
        taken_port = other.getsockname()[1]
        chosen = iter([taken_port])

        class Chosen(socket.socket):
            """Where the kernel would choose a port, it first chooses the one that is taken."""

            def bind(self, address: tuple[str, int]) -> None:  # type: ignore[override]
                host, port = address
                super().bind((host, port or next(chosen, 0)))

        monkeypatch.setattr(listening_sockets.socket, "socket", Chosen)
        sockets.bind("localhost", 0)

    ports = [bound.getsockname()[1] for bound in sockets.sockets]
    assert ports == [sockets.port, sockets.port]
    assert sockets.port not in (0, taken_port)


def test_a_machine_without_ipv6_is_served_by_ipv4(
    sockets: ListeningSockets, localhost_is_both: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoIPv6(socket.socket):
        def __init__(self, family: int = socket.AF_INET, *arguments: int, **named: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(97, "Address family not supported by protocol")
            super().__init__(family, *arguments, **named)

    monkeypatch.setattr(listening_sockets.socket, "socket", NoIPv6)
    sockets.bind("localhost", 0)

    assert [bound.family for bound in sockets.sockets] == [socket.AF_INET]
