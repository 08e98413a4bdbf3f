"""Whom a voter has probed when a connection of its replica ends, and what it makes of a proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.cluster.leader_failure_watch import LeaderFailureWatch
from broker.cluster.quorum_peers import QuorumPeers
from broker.quorum.driver import QuorumDriver
from tests.support.doubles import stands_for

LEADER, OTHER = ("node-2", 9093), ("node-3", 9093)
BROKER = ("node-2", 9092)


@stands_for(QuorumDriver, own=("crashed", "leader_id", "leader_address", "epoch", "is_voter"))
class Quorum:
    def __init__(self) -> None:
        self.leader_id, self.epoch = 2, 7
        self.leader_address: tuple[str, int] | None = LEADER
        self.is_voter = True
        self.crashed: list[int] = []

    def leader_has_failed(self, node_id: int) -> None:
        self.crashed.append(node_id)


@stands_for(QuorumPeers, own=("on_connection_ended",))
class Peers:
    on_connection_ended: Callable[[tuple[str, int]], None]


class Room:
    """Node 2 leads epoch 7, and is a broker too."""

    def __init__(self) -> None:
        self.quorum, self.peers = Quorum(), Peers()
        self.probed: dict[tuple[str, int], Callable[[], None]] = {}
        quorum: Any = self.quorum
        peers: Any = self.peers
        LeaderFailureWatch(quorum, self.probed.__setitem__, {2: BROKER}.get).watch(peers)


def test_a_leader_whose_connection_ended_is_probed_with_its_broker_and_a_proof_is_told() -> None:
    room = Room()
    room.peers.on_connection_ended(LEADER)
    assert list(room.probed) == [LEADER, BROKER] and room.quorum.crashed == []

    room.probed[LEADER]()

    assert room.quorum.crashed == [2]


def test_the_end_of_a_connection_to_another_voter_says_nothing() -> None:
    room = Room()

    room.peers.on_connection_ended(OTHER)

    assert room.probed == {}


def test_an_observer_has_nothing_to_vote_on() -> None:
    room = Room()
    room.quorum.is_voter = False

    room.peers.on_connection_ended(LEADER)

    assert room.probed == {}


@pytest.mark.parametrize(("leader_id", "epoch"), [(3, 8), (2, 8), (-1, 8)])
def test_a_proof_that_comes_after_the_next_election_says_nothing(leader_id: int, epoch: int) -> None:
    room = Room()
    room.peers.on_connection_ended(LEADER)

    room.quorum.leader_id, room.quorum.epoch = leader_id, epoch
    room.probed[LEADER]()

    assert room.quorum.crashed == []
