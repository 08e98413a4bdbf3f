"""QuorumServer: builds and starts a node's replica of the metadata quorum, its controller, and its controller listeners.

Every node has one, whatever its process.roles. It has no code about clients and partitions. Owner: server.py.

Source: kafka.server.SharedServer, ControllerServer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.controller.authorized_controller import AuthorizedController
from broker.controller.channel import ControllerChannel
from broker.controller.controller import Controller
from broker.controller.local_controller import LocalController
from broker.dispatch import KafkaApis
from broker.handlers.services import ControllerServices
from broker.metadata.cluster_state import ClusterState
from broker.metadata.encoded_topic_records import BatchEncoder
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.publisher import MetadataPublisher
from broker.metadata.record_format import read_metadata_batches
from broker.metadata.snapshot import read_bootstrap_records
from broker.metadata.snapshot_generator import SnapshotGenerator
from broker.network.context import ConnectionFacts
from broker.network.listeners import Listener
from broker.quorum.opening import RecordFormats, open_quorum
from broker.quorum.voters import Address, ReplicaKey
from broker.security.authorizer.settings import is_allowed_without_acls, super_users
from broker.security.authorizer.standard_authorizer import StandardAuthorizer
from broker.server.formatting import new_id
from broker.server.node import Node, StartError
from broker.server.quota_keeper import QuotaKeeper
from config.server import STANDARD_AUTHORIZER
from protocol.apis import ListenerKind

if TYPE_CHECKING:
    from broker.cluster.controller_route import ControllerRoute
    from broker.cluster.links import ClusterLinks
    from broker.cluster.silence_watch import SilenceWatch

UNCHECKED_ACLS = (
    "the cluster has access control entries (ACLs), which this node would not check: set "
    f"authorizer.class.name={STANDARD_AUTHORIZER}, as on the cluster's other nodes"
)


class QuorumServer:
    """See the module's docstring. The constructor opens the metadata log; `start` brings `metadata` up to date.

    `authorizer` decides about the requests of this node's listeners; None where authorizer.class.name is not set.

    `links`, which reach other nodes, are None for a node without a controller listener. `listeners` are its controller listeners.
    """

    def __init__(self, node: Node, links: ClusterLinks | None, listeners: list[Listener], directory_id: bytes) -> None:
        """`directory_id` is that of the metadata log's directory. Raises StorageError, and StartError for what no authorizer can use."""
        config = node.config
        self.links = links
        self._node = node
        self._listeners = listeners
        self._routes: list[ControllerRoute] = []
        self._silence_watch: SilenceWatch | None = None  # watches the quorum's leader
        self._controller: LocalController | None = None
        self._authorized_controller: AuthorizedController | None = None  # what all requests to it go by
        self._apis: KafkaApis | None = None
        self.metadata = metadata = MetadataCache(ClusterState(), cluster_id=node.cluster_id, node_id=node.node_id, config=config)
        self.authorizer = self._make_authorizer()
        quotas = QuotaKeeper(node.quotas, metadata.state, node.clock)
        metadata.subscribe(quotas.on_metadata_delta)
        node.metrics.add_collector(quotas.samples)
        node.on_stop(quotas.close)
        peers = None if links is None else links.quorum_peers()
        quorum = open_quorum(
            Path(config.metadata_log_dir),
            config,
            ReplicaKey(node.node_id, directory_id),
            RecordFormats(BatchEncoder(lambda: metadata.state.metadata_version), read_metadata_batches),
            cluster_id=node.cluster_id,
            clock=node.clock,
            random_source=node.random,
            run_blocking=node.run_blocking,
            disk=node.platform.disk,
            peers=peers,
            on_failure=self._quorum_failed,
        )
        node.on_stop(quorum.log.close)
        self.log = quorum.log.log
        self.driver = quorum.driver
        self.raft = quorum.replica.raft
        if links is not None and peers is not None:
            find_broker = partial(metadata.find_address, listener_name=config.inter_broker_listener_name)
            links.watch_leader(self.driver, peers, find_broker)
            if links.silence_ms:
                from broker.cluster.leader_failure_watch import LeaderSilence

                silence = LeaderSilence(self.driver, metadata.state, node_id=node.node_id)
                self._silence_watch = links.silence_watch("leader", silence.find_targets, silence.on_change)
                node.on_stop(self._silence_watch.close)
            self._check_cluster_id(links)
        snapshots = SnapshotGenerator(
            quorum.log, metadata.state, config, node.clock, node.run_blocking, quorum_records_at=self.raft.kraft_records_at
        )
        node.on_stop(snapshots.close)
        self.publisher = MetadataPublisher(metadata, snapshots)
        self.driver.register(self.publisher)  # before the controller, so that its answers are not ahead of the metadata
        self._make_controller()
        node.on_stop(self.driver.close)
        self.channel = self.make_channel(config.broker_session_timeout_ms)

    async def start(self) -> None:
        """Join the metadata quorum and read everything that it has committed. Raises StartError."""
        node = self._node
        self.driver.start()
        if self._silence_watch is not None:
            self._silence_watch.start()
        await self._serve(is_early=True)
        await node.wait_unless_stopped(self.driver.caught_up())
        if self.authorizer is not None:
            self.authorizer.is_loaded = True
        self._refuse_access_control()
        await self._serve(is_early=False)
        await self.publisher.shorten_start()
        if self.links is None and self._controller is not None:
            await self._controller.wait_first_records_committed()
        if self._listeners:
            self._register_controller()

    async def _serve(self, *, is_early: bool) -> None:
        """Accept connections on the listeners that do so before the ACLs are loaded, or on the others (early.start.listeners)."""
        for listener in self._listeners:
            if self._apis is not None and (listener.name in self._node.config.early_listener_names) is is_early:
                listener.listen()
                await listener.start(self._apis.handle, self._apis.refuse)

    def make_channel(self, retry_timeout_ms: int) -> ControllerChannel:
        """Returns a channel to the active controller. Its requests do not wait for those of other channels. It is direct if no other
        node can be the active controller."""
        if self.links is None:
            assert self._authorized_controller is not None, "a node that reaches no other is its own controller"
            return self._authorized_controller
        route = self.links.controller_route(self.driver, self._authorized_controller, retry_timeout_ms=retry_timeout_ms)
        self._node.on_stop(route.close)
        self._routes.append(route)
        return route

    @property
    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        """As `Services.controller_versions`."""
        return self._routes[0].versions if self._routes else None  # that of the heartbeats

    def shorten_retries(self) -> None:
        """Shorten the waits for the active controller, because this node is stopping."""
        for route in self._routes:
            route.shorten_retries()

    def _make_authorizer(self) -> StandardAuthorizer | None:
        config = self._node.config
        if not config.authorizer_class_name:
            return None
        try:
            users = super_users(config.super_users)
        except ValueError as error:
            raise StartError(f"Invalid value for configuration super.users: {error}") from error
        return StandardAuthorizer(
            self.metadata.state.acls,
            super_users=users,
            is_allowed_without_acls=is_allowed_without_acls(config.allow_everyone_if_no_acl_found),
        )

    def _make_controller(self) -> None:
        """Create the controller in this process, if the node may become one. It also serves other nodes if they can reach it."""
        node, quorum, metadata = self._node, self.driver, self.metadata
        config = node.config
        if "controller" not in config.process_roles:
            return
        detector = None if self.links is None else self.links.failure_detector
        controller = self._controller = LocalController(
            lambda: self._make_leading_controller(metadata.state.copy()),
            quorum,
            node.clock,
            node_id=node.node_id,
            bootstrap=lambda: read_bootstrap_records(Path(config.metadata_log_dir), node.platform.disk),
            is_alone=self.links is None,
            listener_name=config.inter_broker_listener_name,
            prove=None if detector is None else detector.prove,
            ask=self.links.ask_once if self.links is not None and self.links.silence_ms else None,
            quotas=node.quotas.controller_mutation,
        )
        authorized = self._authorized_controller = AuthorizedController(controller, has_authorizer=self.authorizer is not None)
        quorum.register(controller)
        node.on_stop(controller.close)
        if self._listeners:
            services = ControllerServices(
                node.clock,
                node.metrics,
                metadata,
                authorized,
                lambda: controller.is_active,
                quorum.handle_request,
                self._handle_forwarded,
                quorum,
                config,
                self.authorizer,
                node.quotas,
            )
            self._apis = KafkaApis(services, node.turns, ListenerKind.CONTROLLER)
            node.on_stop(self._apis.close)

    def _check_cluster_id(self, links: ClusterLinks) -> None:
        """Stop this node if the voters of its quorum belong to another cluster."""
        from broker.cluster.cluster_ids import ClusterIdCheck, ask_cluster_ids

        node, raft = self._node, self.raft
        connections = links.cluster_id_connections()

        def find_voters() -> tuple[list[Address], int]:
            """Returns the voters in the log or in the config; for a node with neither, the bootstrap servers."""
            name, others = raft.config.listener_name, [voter for voter in raft.voters if voter.key.node_id != node.node_id]
            if not len(raft.voters):
                return list(raft.config.bootstrap), len(raft.config.bootstrap)
            return [voter.endpoints[name] for voter in others if name in voter.endpoints], len(raft.voters)

        check = ClusterIdCheck(
            node.cluster_id, node.clock, find_voters, partial(ask_cluster_ids, connections), partial(node.request_stop, 1)
        )
        raft.on_other_cluster = check.begin
        node.on_stop(connections.close)
        node.on_stop(check.close)

    def _make_leading_controller(self, state: ClusterState) -> Controller:
        """Returns the Controller for this node's leadership; it owns `state`."""
        node = self._node
        return Controller(
            node.config,
            node_id=node.node_id,
            random_source=node.random,
            replicas_max=node.descriptors.partitions,
            state=state,
            cluster_id=node.cluster_id,
            now_ms=node.clock.monotonic_ms(),
        )

    def _refuse_access_control(self) -> None:
        """Stop if there are ACLs: Kafka's nodes with an authorizer enforce them, and this node would not."""
        if self.authorizer is not None:
            return
        if self.metadata.state.acls:
            raise StartError(UNCHECKED_ACLS)
        self.publisher.on_access_control = lambda: self._node.request_stop(1, UNCHECKED_ACLS)

    def _register_controller(self) -> None:
        from broker.cluster.controller_registration import ControllerRegistrar, advertised_endpoints

        node = self._node
        ports = {listener.name: listener.port for listener in self._listeners}
        endpoints = advertised_endpoints(node.config, ports)
        incarnation_id = new_id(node.platform.entropy)
        registrar = ControllerRegistrar(
            self.channel,
            node.clock,
            node_id=node.node_id,
            incarnation_id=incarnation_id,
            endpoints=endpoints,
            notices_silence=self.links is not None and self.links.silence_ms > 0,
        )
        registrar.start()
        node.on_stop(registrar.stop)

    def _handle_forwarded(self, frame: memoryview, facts: ConnectionFacts) -> Any:
        """Handle a request to the controller that came in an Envelope."""
        assert self._apis is not None
        return self._apis.handle(frame, facts)

    def _quorum_failed(self, error: Exception) -> None:
        if self._controller is not None:
            self._controller.fail(error)
        self._node.request_stop(1, "the metadata log failed")
