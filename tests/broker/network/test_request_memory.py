"""The budget of held request bytes: who is over it waits, one always goes on, nobody is forgotten."""

from __future__ import annotations

from broker.network.request_memory import RequestMemory


class Peer:
    def __init__(self) -> None:
        self.resumed = 0

    def memory_available(self) -> None:
        self.resumed += 1


def test_holders_below_the_limit_read_on() -> None:
    memory = RequestMemory(100)

    assert memory.hold(Peer(), 60)
    assert memory.hold(Peer(), 40)


def test_a_single_holder_may_exceed_the_limit() -> None:
    memory = RequestMemory(100)

    assert memory.hold(Peer(), 500)


def test_a_holder_over_the_limit_waits_until_another_is_done() -> None:
    memory = RequestMemory(100)
    first, second = Peer(), Peer()
    memory.hold(first, 80)

    assert memory.hold(second, 30) is False
    memory.hold(first, 0)

    assert second.resumed == 1
    assert memory.held_size == 30


def test_waiting_holders_go_on_in_order_as_room_appears() -> None:
    memory = RequestMemory(100)
    peers = [Peer() for _ in range(4)]
    for peer in peers:
        memory.hold(peer, 60)
    assert [peer.resumed for peer in peers] == [0, 0, 0, 0]

    memory.hold(peers[0], 0)

    assert [peer.resumed for peer in peers] == [0, 1, 0, 0]


def test_a_waiting_holder_that_leaves_is_forgotten() -> None:
    memory = RequestMemory(100)
    first, second, third = Peer(), Peer(), Peer()
    memory.hold(first, 90)
    memory.hold(second, 90)
    memory.hold(third, 90)

    memory.hold(second, 0)
    memory.hold(first, 0)

    assert (second.resumed, third.resumed) == (0, 1)
