"""ClusterLinks: creates the connections from this node to the others of its cluster. A node without a controller listener has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.cluster.controller_route import ControllerRoute, find_active_controller
from broker.cluster.failure_detector import FailureDetector
from broker.cluster.leader_failure_watch import LeaderFailureWatch
from broker.cluster.leader_probe import LeaderProbe
from broker.cluster.peer_connections import PeerConnections, connection_maker
from broker.cluster.quorum_peers import QuorumPeers
from broker.cluster.silence_watch import SilenceWatch, ask_once, tick_ms
from broker.controller.channel import ControllerChannel
from broker.network.peer_traffic import PeerTraffic
from broker.quorum.driver import QuorumDriver
from broker.quorum.voters import Address
from config.server import ServerConfig
from protocol.framing import BufferPool

if TYPE_CHECKING:
    from broker.network.peer_login import PeerSecurity
    from broker.platform import Platform

QUORUM_IN_FLIGHT_MAX = 5
ROUTE_IN_FLIGHT_MAX = 1  # the next request may go to another node
UNANSWERED_MAX = 4
"""How many times the time of silence a connection stays on which nothing is answered."""


class ClusterLinks:
    """The callers close the objects that they get; `close` closes `failure_detector`, which is None if barnabas.fast.fencing is off.
    `pool` provides the buffers of received frames. `to_brokers` and `to_controllers` are how the listeners of each are connected to."""

    def __init__(
        self,
        platform: Platform,
        pool: BufferPool,
        config: ServerConfig,
        *,
        to_brokers: PeerSecurity | None = None,
        to_controllers: PeerSecurity | None = None,
    ) -> None:
        self._to_brokers = to_brokers
        self._to_controllers = to_controllers
        self.quorum_traffic = PeerTraffic()
        """What this node's replica of the metadata log has sent to the others as their client, and got back."""
        self._platform = platform
        self._pool = pool
        self._config = config
        self.failure_detector = FailureDetector(platform.network, platform.clock) if config.barnabas_fast_fencing else None

        self.silence_ms = config.barnabas_fast_fencing_silence_ms if config.barnabas_fast_fencing else 0
        """How long a node may be silent until it counts as gone; 0 for ever."""
        self._questions: PeerConnections | None = None  # those of the controller

    async def close(self) -> None:
        if self._questions is not None:
            await self._questions.close()
        if self.failure_detector is not None:
            await self.failure_detector.close()

    def watch_leader(self, quorum: QuorumDriver, peers: QuorumPeers, find_broker: Callable[[int], Address | None]) -> None:
        """Notify `quorum` from now on when its leader's process is gone. `find_broker` is as in LeaderFailureWatch."""
        if self.failure_detector is not None:
            LeaderFailureWatch(quorum, self.failure_detector.prove, find_broker).watch(peers)

    def silence_watch(
        self, purpose: str, find_targets: Callable[[], Mapping[int, Address]], on_change: Callable[[frozenset[int]], None]
    ) -> SilenceWatch:
        """Returns a SilenceWatch, which the caller starts and closes. `silence_ms` must not be 0."""
        security = self._to_brokers if purpose == "broker" else self._to_controllers
        connections = self._connections(f"{purpose}-silence", UNANSWERED_MAX * self.silence_ms, 1, security)
        return SilenceWatch(connections, self._platform.clock, find_targets, on_change, silence_ms=self.silence_ms)

    def ask_once(self, address: Address, on_end: Callable[[bool], None]) -> None:
        """As silence_watch.ask_once, for a tick."""
        if self._questions is None:
            self._questions = self._connections("controller-question", UNANSWERED_MAX * self.silence_ms, 1, self._to_brokers)
        ask_once(self._questions, self._platform.clock, address, tick_ms(self.silence_ms), on_end)

    def leader_probe(self, find_address: Callable[[int], Address | None], on_refused: Callable[[int], None]) -> LeaderProbe:
        platform = self._platform
        return LeaderProbe(platform.network, platform.clock, find_address, on_refused, node_id=self._config.node_id)

    def quorum_peers(self) -> QuorumPeers:
        """Returns the connections of this node's replica of the metadata log to the others."""
        timeout_ms = self._config.controller_quorum_request_timeout_ms
        connections = self._connections("raft-client", timeout_ms, QUORUM_IN_FLIGHT_MAX, self._to_controllers, self.quorum_traffic)
        return QuorumPeers(connections, self._platform.clock)

    def broker_connections(self, purpose: str) -> PeerConnections:
        """Returns connections to other brokers on which one request at a time is answered. Each purpose has its own."""
        return self._connections(purpose, self._config.request_timeout_ms, ROUTE_IN_FLIGHT_MAX, self._to_brokers)

    def cluster_id_connections(self) -> PeerConnections:
        """Returns connections by which the other nodes of the quorum are asked for their cluster id."""
        timeout_ms = self._config.controller_quorum_request_timeout_ms
        return self._connections("cluster-id", timeout_ms, ROUTE_IN_FLIGHT_MAX, self._to_controllers)

    def controller_route(self, quorum: QuorumDriver, local: ControllerChannel | None, *, retry_timeout_ms: int) -> ControllerRoute:
        """Returns a route to the active controller. Requests on one route wait for each other."""
        node_id = self._config.node_id
        timeout_ms = min(self._config.controller_socket_timeout_ms, retry_timeout_ms)
        return ControllerRoute(
            lambda: find_active_controller(quorum, node_id),
            self._connections("to-controller", timeout_ms, ROUTE_IN_FLIGHT_MAX, self._to_controllers),
            self._platform.clock,
            local=local,
            node_id=node_id,
            retry_timeout_ms=retry_timeout_ms,
        )

    def _connections(
        self,
        purpose: str,
        request_timeout_ms: int,
        in_flight_max: int,
        security: PeerSecurity | None,
        traffic: PeerTraffic | None = None,
    ) -> PeerConnections:
        config = self._config
        return PeerConnections(
            connection_maker(
                self._platform,
                self._pool,
                client_id=f"{purpose}-{config.node_id}",
                request_timeout_ms=request_timeout_ms,
                connect_timeouts_ms=(config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms),
                max_frame_size=config.socket_request_max_bytes,
                in_flight_max=in_flight_max,
                security=security,
                traffic=traffic,
            )
        )
