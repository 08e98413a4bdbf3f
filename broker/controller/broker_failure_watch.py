"""BrokerFailureWatch: the active controller notices that a broker's process is gone, without waiting for broker.session.timeout.ms.

It probes a broker's registered address when the broker's heartbeat connection has ended. A new controller has no such connections yet, so
it probes every unfenced broker at once. `prove` knows how to probe and what proves a failure. A proof counts only while no connection of
that registration is open.

No counterpart in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.controller.heartbeats import BrokerHeartbeats
    from broker.metadata.cluster_state import ClusterState
    from broker.metadata.image import BrokerImage
    from broker.network.context import ConnectionFacts

Prove = Callable[[tuple[str, int], Callable[[], None]], None]
"""Calls back once it is proven that the process at that address (host and port) is gone."""


class BrokerFailureWatch:
    """One epoch of this node's leadership. Owner: LocalController, whose `fence` gets the id of a broker that is gone.

    `prove` is None where barnabas.fast.fencing is off. The end of a connection then only lets a new incarnation register at once."""

    def __init__(
        self,
        state: ClusterState,
        heartbeats: BrokerHeartbeats,
        fence: Callable[[int], None],
        *,
        node_id: int,
        listener_name: str,
        prove: Prove | None,
    ) -> None:
        self._state = state
        self._heartbeats = heartbeats
        self._fence = fence
        self._node_id = node_id
        self._listener_name = listener_name
        self._prove = prove
        self._connections: dict[int, ConnectionFacts] = {}
        self._is_over = False

    def probe_all(self) -> None:
        """Probe every unfenced broker except the one in this process."""
        for broker in tuple(self._state.brokers.values()):
            if not broker.is_fenced and broker.node_id != self._node_id:
                self._probe(broker)

    def note_connection(self, node_id: int, epoch: int, connection: ConnectionFacts) -> None:
        """Record that the broker registered with `epoch` sent a heartbeat on `connection`, which may have ended since."""
        self._connections[node_id] = connection
        connection.on_closed = lambda: self._connection_ended(node_id, epoch, connection)
        if connection.is_closed:
            self._connection_ended(node_id, epoch, connection)

    def end(self) -> None:
        """Called when this node's leadership ends. The connections stay open, but their callbacks into this controller are removed."""
        self._is_over = True
        for connection in self._connections.values():
            connection.on_closed = None
        self._connections.clear()

    def _connection_ended(self, node_id: int, epoch: int, connection: ConnectionFacts) -> None:
        if self._is_over or self._connections.get(node_id) is not connection:
            return
        del self._connections[node_id]
        self._heartbeats.note_disconnection(node_id, epoch)
        broker = self._state.brokers.get(node_id)
        if broker is not None and broker.epoch == epoch and not broker.is_fenced:
            self._probe(broker)

    def _probe(self, broker: BrokerImage) -> None:
        address = broker.endpoints.get(self._listener_name) or next(iter(broker.endpoints.values()), None)
        if self._prove is not None and address is not None:
            self._prove(address, lambda: self._proven(broker.node_id, broker.epoch))

    def _proven(self, node_id: int, epoch: int) -> None:
        broker = self._state.brokers.get(node_id)
        if self._is_over or node_id in self._connections or broker is None or broker.epoch != epoch or broker.is_fenced:
            return
        self._fence(node_id)
