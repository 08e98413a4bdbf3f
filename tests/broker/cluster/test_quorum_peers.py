"""Requests to other replicas of the metadata log: none waits for one that was found away a moment ago."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

from broker.cluster.peer_connections import PeerConnections
from broker.cluster.quorum_peers import FAREWELL_MS, QuorumPeers
from broker.network.client import PeerConnection, State
from broker.quorum.peers import Node
from broker.quorum.raft import Outgoing
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from protocol.messages.vote import VoteRequest
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

PEER = Node(2, "peer", 9093)


@stands_for(PeerConnection, own=("state", "sent", "on_lost"))
class Connection:
    def __init__(self) -> None:
        self.state = State.IDLE
        self.sent: list[Any] = []
        self.on_lost: Callable[[], None] = lambda: None

    def send(
        self, message: Any, on_answer: Callable[[Any | None], None], *, version: int | None = None, timeout_ms: int | None = None
    ) -> None:
        self.sent.append(message)

    def close(self) -> None:
        self.state = State.CLOSED


class Room:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.connection = Connection()
        connection: Any = self.connection
        self.peers = QuorumPeers(PeerConnections(lambda host, port, run: connection), self.clock)
        self.answers: list[Any | None] = []
        self.ended: list[tuple[str, int]] = []
        self.peers.on_connection_ended = self.ended.append

    def ask(self) -> None:
        self.peers.send(Outgoing(PEER, 1, VoteRequest()), self.answers.append)


def test_a_peer_that_was_away_a_moment_ago_is_not_waited_for() -> None:
    room = Room()
    room.connection.state = State.BACKING_OFF

    room.ask()
    assert room.answers == [], "never from inside the call"
    room.clock.advance(1)

    assert room.answers == [None] and room.connection.sent == []
    room.connection.state = State.IDLE
    room.ask()
    assert len(room.connection.sent) == 1


def test_the_end_of_a_connection_is_told_with_its_address() -> None:
    room = Room()
    room.ask()

    room.connection.on_lost()

    assert room.ended == [("peer", 9093)]


async def test_a_farewell_that_nobody_answers_is_waited_for_a_moment_and_reported_by_nobody() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    room = Room()
    room.peers.send(Outgoing(PEER, 1, EndQuorumEpochRequest()), room.answers.append)

    closing = asyncio.create_task(room.peers.close())
    await asyncio.sleep(0)
    assert room.connection.state is State.IDLE
    room.clock.advance(FAREWELL_MS)
    await closing
    await asyncio.sleep(0)
    gc.collect()

    assert room.connection.state is State.CLOSED
    assert reported == []
