"""The budget of held request bytes: who is above its share waits, one always goes on, stalled ones are closed, nobody is forgotten."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.network.request_memory import PROGRESS_MIN, Holder, RequestMemory
from protocol.framing import SmallFrameBuffer

MB = 1024 * 1024
LIMIT = 128 * MB  # short from 64 MB on, scarce from 96 MB on


class Peer(Holder):
    """A connection that receives one frame, byte by byte as the test says."""

    def __init__(self, memory: RequestMemory, address: str = "10.0.0.1") -> None:
        self._memory = memory
        self._address = address
        self.size = 0
        self.is_receiving = True
        self.awaits = False
        self.unread = True
        self.reads = True
        self.is_closed = False

    @property
    def address(self) -> str:
        return self._address

    @property
    def awaits_peer(self) -> bool:
        return self.awaits

    @property
    def has_unread_bytes(self) -> bool:
        return self.unread

    def report_memory(self) -> None:
        self._memory.hold(self, self.size, is_receiving=self.is_receiving)

    def pause_for_memory(self) -> None:
        assert self.reads
        self.reads = False

    def memory_available(self) -> None:
        assert not self.reads
        self.reads = True

    def close_for_memory(self, held_size: int) -> None:
        assert held_size == self.size
        self.is_closed = True

    def holds(self, size: int) -> Peer:
        self.size = size
        self.report_memory()
        return self

    def leave(self) -> None:
        self._memory.forget(self)


class Budget(RequestMemory):
    """Its loop's turns come when the test says so."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.calls: list[tuple[Callable[[int], None], int]] = []
        super().__init__(limit, lambda callback, argument: self.calls.append((callback, argument)))

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for callback, argument in calls:
            callback(argument)

    def peers(self, *sizes: int, address: str = "10.0.0.1") -> list[Peer]:
        return [Peer(self, address).holds(size) for size in sizes]


def test_nobody_waits_while_there_is_plenty() -> None:
    budget = Budget()

    peers = budget.peers(40 * MB, 20 * MB, 3 * MB)

    assert all(peer.reads for peer in peers)


def test_above_half_of_the_limit_those_above_their_share_wait_but_for_the_first() -> None:
    budget = Budget()

    modest, _, first, second = budget.peers(1, 1, 46 * MB, 45 * MB)

    assert (first.reads, second.reads, modest.reads) == (True, False, True)
    assert budget.waiting_count == 1


def test_the_shares_are_those_of_addresses_first() -> None:
    budget = Budget()
    crowd = budget.peers(*[5 * MB] * 14)

    (alone,) = budget.peers(20 * MB, address="10.0.0.2")

    assert alone.reads
    assert [peer.holds(peer.size + 1).reads for peer in crowd].count(True) == 1


def test_when_memory_is_scarce_usual_requests_go_on() -> None:
    budget = Budget()
    budget.peers(50 * MB, 47 * MB)

    modest, larger = budget.peers(1 * MB, 3 * MB)

    assert (modest.reads, larger.reads) == (True, False)


def test_beyond_the_limit_only_one_reads_on() -> None:
    budget = Budget()
    peers = budget.peers(*[1 * MB] * 129)

    assert [peer.reads for peer in peers].count(True) == 1


def test_those_that_wait_go_on_when_memory_is_free_again() -> None:
    budget = Budget()
    first, second, third = budget.peers(60 * MB, 30 * MB, 30 * MB)
    assert (first.reads, second.reads, third.reads) == (True, False, False)

    first.holds(0)

    assert second.reads and third.reads


def test_the_one_that_goes_on_is_followed_by_who_waits_longest() -> None:
    budget = Budget()
    peers = budget.peers(*[20 * MB] * 6)
    order = []

    while budget.waiting_count == len([peer for peer in peers if peer.size]) - 1:
        (reader,) = [peer for peer in peers if peer.reads and peer.size]
        order.append(peers.index(reader))
        reader.holds(reader.size + 5 * MB)
        reader.holds(0)

    assert order == [0, 1]
    assert all(peer.reads for peer in peers)


def test_a_connection_that_waits_and_is_closed_is_forgotten() -> None:
    budget = Budget()
    first, second, third = budget.peers(60 * MB, 60 * MB, 20 * MB)

    second.leave()
    first.leave()

    assert third.reads and not second.reads
    assert budget.held_size == 20 * MB
    assert budget.waiting_count == 0


def sweep(budget: Budget, *alive: Peer) -> None:
    for peer in alive:
        if peer.reads:
            peer.holds(peer.size + PROGRESS_MIN)
    budget.sweep()


def test_a_stalled_connection_is_closed_while_others_wait() -> None:
    budget = Budget()
    first, second, modest = budget.peers(60 * MB, 60 * MB, 100)

    sweep(budget)
    assert not first.is_closed, "it is judged by a whole interval"
    sweep(budget)

    assert (first.is_closed, second.is_closed, modest.is_closed) == (True, False, False)
    first.leave()
    assert second.reads


def test_a_connection_that_goes_on_is_not_closed() -> None:
    budget = Budget()
    first, second = budget.peers(60 * MB, 60 * MB)

    for _ in range(5):
        sweep(budget, first)

    assert not first.is_closed and not second.is_closed


def test_nobody_is_closed_while_nobody_waits() -> None:
    budget = Budget()
    peers = budget.peers(60 * MB, 3 * MB, 3 * MB)

    for _ in range(3):
        sweep(budget)

    assert not any(peer.is_closed for peer in peers)


def test_stalled_connections_of_the_greediest_address_are_closed_until_memory_is_not_short() -> None:
    budget = Budget()
    stalled = budget.peers(*[1 * MB] * 110)
    modest = budget.peers(*[1 * MB] * 18, address="10.0.0.2")
    (waiting,) = budget.peers(3 * MB, address="10.0.0.3")
    for peer in (*stalled, *modest):
        peer.unread = False
    assert not waiting.reads

    sweep(budget)
    sweep(budget)

    closed_size = sum(peer.size for peer in stalled if peer.is_closed)
    assert 0 <= budget.held_size - closed_size <= LIMIT * 3 // 8
    assert not any(peer.is_closed for peer in [*modest, waiting])


def test_a_frame_that_requests_refer_to_counts_until_nobody_does() -> None:
    budget = Budget()
    (peer,) = budget.peers(1 * MB)
    buffer = SmallFrameBuffer(5 * MB)
    budget.keep(peer, buffer)
    peer.holds(0)
    assert budget.held_size == 5 * MB

    peer.leave()
    assert budget.held_size == 5 * MB
    del buffer
    budget.turn()

    assert budget.held_size == 0


def test_requests_in_progress_are_never_stalled_and_frames_do_not_grow_before_they_end() -> None:
    budget = Budget()
    working, waiting = budget.peers(1, 1)
    buffers = [SmallFrameBuffer(50 * MB) for _ in range(3)]
    for buffer in buffers:
        budget.keep(working, buffer)
    working.is_receiving = False
    working.holds(0)
    waiting.holds(30 * MB)
    assert not waiting.reads

    for _ in range(3):
        sweep(budget)
    assert not working.is_closed
    buffers.clear()
    del buffer
    budget.turn()

    assert waiting.reads


def test_what_waits_for_its_own_peer_is_closed_while_others_wait() -> None:
    """A frame behind a parked request, or an answer that is not taken."""
    budget = Budget()
    (own,) = budget.peers(70 * MB)
    own.is_receiving, own.awaits = False, True
    own.report_memory()
    others = budget.peers(30 * MB, 30 * MB)
    assert [peer.reads for peer in others] == [True, False]

    sweep(budget, *others)
    assert not own.is_closed
    sweep(budget, *others)

    assert own.is_closed
    assert not any(peer.is_closed for peer in others)


@pytest.mark.parametrize("limit", [MB, 100 * MB, 1 << 40])
def test_a_budget_that_was_used_up_is_whole_again(limit: int) -> None:
    budget = Budget(limit)
    peers = budget.peers(*[limit // 20] * 40)
    assert [peer.reads for peer in peers].count(True) == 1

    while unfinished := [peer for peer in peers if peer.size]:
        next(peer for peer in unfinished if peer.reads).holds(0)

    assert budget.held_size == budget.waiting_count == 0
    assert all(peer.reads for peer in peers)
