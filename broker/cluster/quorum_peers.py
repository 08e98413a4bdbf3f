"""QuorumPeers: sends the raft requests to the other replicas of the metadata log. Satisfies the quorum driver's Peers.

The raft core decides where to send a request and when to repeat it. Each request gets at most one answer, within
controller.quorum.request.timeout.ms.

Source: org.apache.kafka.raft.KafkaNetworkChannel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker.cluster.peer_connections import PeerConnections
from broker.loop.clock import Clock
from broker.network.client import State
from broker.quorum.raft import Outgoing
from broker.quorum.voters import Address
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest

FAREWELL_MS = 500
"""How long a leader that stops waits until the others have heard of it: longer than an election among those that live takes."""


class QuorumPeers:
    """Owns `connections`. `on_connection_ended` is called with a replica's address when an established connection to it has ended."""

    def __init__(self, connections: PeerConnections, clock: Clock) -> None:
        self._connections = connections
        self._clock = clock
        self.on_connection_ended: Callable[[Address], None] = lambda address: None
        connections.on_ended = lambda host, port: self.on_connection_ended((host, port))
        self._farewells_count = 0  # not answered yet
        self._farewells_over = asyncio.Event()

    def send(self, outgoing: Outgoing, on_answer: Callable[[Any | None], None]) -> None:
        node = outgoing.node
        if isinstance(outgoing.request, EndQuorumEpochRequest):
            on_answer = self._noted(on_answer)
        connection = self._connections.get(node.host, node.port)
        if connection.state is State.BACKING_OFF:
            # The peer is not reachable for up to a second. The core asks another one instead; an observer asks any of the others.
            self._clock.call_later(0, on_answer, None)
        else:
            connection.send(outgoing.request, on_answer)

    async def close(self) -> None:
        """Wait briefly until the others know that this node is no longer leader, then close the connections."""
        if self._farewells_count:
            self._farewells_over.clear()
            timer = self._clock.call_later(FAREWELL_MS, self._farewells_over.set)
            await self._farewells_over.wait()
            timer.cancel()
        await self._connections.close()

    def _noted(self, on_answer: Callable[[Any | None], None]) -> Callable[[Any | None], None]:
        self._farewells_count += 1

        def answered(response: Any | None) -> None:
            self._farewells_count -= 1
            if not self._farewells_count:
                self._farewells_over.set()
            on_answer(response)

        return answered
