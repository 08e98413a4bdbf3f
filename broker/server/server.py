"""Broker: the running node. It opens the resources of the whole node, and starts and stops the node's parts in order.

quorum_server.py builds the part that every node has, the metadata quorum and its controller; client_server.py builds the parts that serve
clients, with transaction_server.py for those of transactions. No other module in broker/ builds such parts, except inter_broker.py, when a
partition first has replicas on other brokers.

Start: bind the ports (a used one ends the start at once), lock the log directories, load the metadata log, recover the partitions' logs,
become leader, and only then accept connections. Stop: the reverse.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from broker.network.context import ListenerFacts
from broker.network.listeners import ConnectionRegistry, Listener, limits_by_address
from broker.network.listening_sockets import ListenError
from broker.network.sockets import SMALL_SEND_BUFFER_BYTES_MAX, SYSTEM_DEFAULT, SocketOptions
from broker.platform import Platform, system_platform
from broker.quorum.opening import other_addresses
from broker.quorum.voters import Address
from broker.server.client_server import ClientServer
from broker.server.formatting import format_directories, new_id
from broker.server.listener_security import ListenerSecurity
from broker.server.node import Node, StartError
from broker.server.peers import Peers
from broker.server.quorum_server import QuorumServer
from config.endpoints import Endpoint
from config.listener_settings import ListenerSettings
from config.properties import ConfigError
from config.server import ServerConfig
from protocol.apis import ListenerKind
from protocol.errors import KafkaError
from protocol.uuids import ZERO_UUID, uuid_to_text
from storage.errors import StorageError
from storage.files import META_PROPERTIES
from storage.log_directory import LogDirectory, check_identities
from storage.log_manager import LogManager
from storage.meta_properties import MetaProperties

if TYPE_CHECKING:
    from broker.cluster.links import ClusterLinks
    from broker.security.sasl.scram_server import ScramCredentials

logger = logging.getLogger("barnabas.server")
HOW_TO_FORMAT = "run `barnabas format -t $(barnabas random-uuid)` with the same --config and --override, or set barnabas.auto.format=true"


class NotFormattedError(StartError):
    """No log directory is formatted. The caller adds advice to the message."""


class Broker:
    """One node. `start` returns when it serves; `stop` closes its directories cleanly."""

    def __init__(self, config: ServerConfig, *, new_cluster_id: str = "", platform: Platform | None = None) -> None:
        """`new_cluster_id` is for directories that this start formats; "" stands for a random one. `platform` is by default this
        machine."""
        self.config = config
        self.node_id = config.node_id
        self.listeners: list[Listener] = []
        self.controller_listeners: list[Listener] = []
        self._new_cluster_id = new_cluster_id
        self._node = Node(config, platform or system_platform(asyncio.get_running_loop()))
        self._registry: ConnectionRegistry | None = None
        self._log_manager: LogManager | None = None
        self._failed_directories: set[Path] = set()
        self._to_brokers: Peers | None = None
        self._quorum: QuorumServer | None = None
        self._clients: ClientServer | None = None

    async def start(self) -> None:
        """Start the node. Raises StartError, after everything begun was undone."""
        try:
            await self._start()
        except StartError:
            await self.stop()
            raise
        except (ListenError, ConfigError, StorageError, KafkaError, OSError) as e:
            await self.stop()
            raise StartError(str(e)) from e

    async def stop(self) -> None:
        """Stop serving and close everything, in the reverse order of the start."""
        await self._node.stop()

    async def wait_stopped(self) -> int:
        """Returns the exit code when the broker was asked to stop."""
        return await self._node.wait_stopped()

    def request_stop(self, exit_code: int, reason: str) -> None:
        """As Node.request_stop."""
        self._node.request_stop(exit_code, reason)

    @property
    def stop_reason(self) -> str:
        """Empty until the broker is asked to stop."""
        return self._node.stop_reason

    @property
    def cluster_id(self) -> str:
        """Empty until the log directories are open."""
        return self._node.cluster_id

    def run_blocking(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Run `function` in the thread pool."""
        return self._node.run_blocking(function, *arguments)

    def prepare_internal_topics(self) -> None:
        """Create the topics of committed offsets and of transactions early: as soon as there are enough brokers for all their replicas, and
        as many as the quorum has voters. Otherwise the first consumer group, or transactional producer, has its topic created, and its
        client has to ask again."""
        assert self._clients is not None, "the broker was not started"
        self._clients.prepare_internal_topics()

    # -- the start, step by step ----------------------------------------------------------------------------------

    async def _start(self) -> None:
        config, node = self.config, self._node
        node.on_stop(node.platform.executor.shutdown)
        registry = self._registry = self._make_registry()
        self._security = ListenerSecurity(
            config,
            node.platform,
            registry,
            credentials=self._find_credentials,
            cluster_secret=self._cluster_secret,
            metrics=node.metrics,
        )
        node.on_stop(self._security.close)
        links = self._make_links(registry)
        for endpoint in config.controller_listeners:
            self.controller_listeners.append(self._bind(endpoint, registry, ListenerKind.CONTROLLER))
        for endpoint in config.client_listeners:
            self.listeners.append(self._bind(endpoint, registry))
        try:
            log_manager, directory_id = self._open_directories()
        except NotFormattedError as e:
            raise StartError(f"{e}: {await self._how_to_format(links)}") from e
        self._log_manager = log_manager
        self._quorum = QuorumServer(node, links, self.controller_listeners, directory_id)
        await self._quorum.start()
        if "broker" in config.process_roles:
            self._clients = ClientServer(node, self._quorum, log_manager, self.listeners, registry, self._to_brokers, self._security)
            await self._clients.start()
        await self._serve_metrics(self._quorum, self._clients)
        if self._clients is not None:
            await self._clients.serve()

    def _make_registry(self) -> ConnectionRegistry:
        config, node = self.config, self._node
        registry = ConnectionRegistry(
            node.loop,
            node.clock,
            node.platform.executor,
            node.platform.network,
            max_request_memory=config.queued_request_bytes_limit,
            max_connections=min(config.connections_limit, node.descriptors.connections),
            max_connections_per_ip=config.connections_per_ip_limit,
            max_connections_of_ip=limits_by_address(config.max_connections_per_ip_overrides),
            inter_broker_listener=config.inter_broker_listener_name,
            rates=node.quotas.connection_rates,
            cpu_meter=node.quotas.cpu_meter,
            idle_ms=config.connections_max_idle_ms,
            frame_deadline_ms=config.barnabas_frame_deadline_ms,
            authentication_ms=config.barnabas_authentication_timeout_ms,
            busy_poll_us=config.barnabas_busy_poll_us,
            on_count=node.metrics.connection_count,
            on_authentication=node.metrics.authentication,
            on_refused=node.metrics.request_refused,
        )
        node.on_stop(registry.close)
        return registry

    def _make_links(self, registry: ConnectionRegistry) -> ClusterLinks | None:
        """Returns the links to other nodes; None if they cannot reach this node."""
        if not self.config.controller_listener_names:
            return None
        from broker.cluster.links import ClusterLinks  # late: a single node does not need it

        security = self._security
        self._to_brokers = security.to_brokers()
        links = ClusterLinks(
            self._node.platform,
            registry.pool,
            self.config,
            to_brokers=self._to_brokers,
            to_controllers=security.to_controllers(),
        )
        self._node.on_stop(links.close)
        return links

    def _bind(self, endpoint: Endpoint, registry: ConnectionRegistry, kind: ListenerKind = ListenerKind.CLIENT) -> Listener:
        authenticator, secure = self._security.secure(endpoint.listener_name, endpoint.security_protocol)
        facts = ListenerFacts(
            endpoint.listener_name,
            kind=kind,
            security_protocol=endpoint.security_protocol,
            max_frame_size=self.config.socket_request_max_bytes,
            max_request_size=self.config.barnabas_request_bytes_max if kind is ListenerKind.CLIENT else sys.maxsize,
            send_buffer_bytes=self.config.socket_send_buffer_bytes,
            max_connections=cast("int", ListenerSettings(self.config.texts, endpoint.listener_name).value("max.connections")),
        )
        is_small = self.config.socket_send_buffer_bytes <= SMALL_SEND_BUFFER_BYTES_MAX
        listener = Listener(
            facts,
            registry,
            SocketOptions(
                backlog=self.config.socket_listen_backlog_size,
                send_buffer_bytes=self.config.socket_send_buffer_bytes if is_small else SYSTEM_DEFAULT,
                receive_buffer_bytes=self.config.socket_receive_buffer_bytes,
            ),
            authenticator=authenticator,
            secure=secure,
        )
        self._node.on_stop(listener.stop)
        listener.bind(endpoint.host, endpoint.port)
        return listener

    def _find_credentials(self) -> ScramCredentials:
        assert self._quorum is not None, "a listener serves after its node's metadata are there"
        return self._quorum.metadata.credentials

    def _cluster_secret(self) -> bytes:
        from broker.security.credentials.cluster_secret import cluster_secret

        key = self.config.value_of("delegation.token.secret.key")
        return cluster_secret(self._node.cluster_id, None if key is None else str(key))

    def _open_directories(self) -> tuple[LogManager, bytes]:
        """Lock the log directories and read their meta.properties. Empty ones are formatted first, if the config asks for it.

        Also returns the directory id of the metadata log; ZERO_UUID if an older version formatted its directory without one."""
        config, node = self.config, self._node
        disk, entropy = node.platform.disk, node.platform.entropy
        metadata_path = Path(config.metadata_log_dir)
        if config.barnabas_auto_format and not any(self._is_formatted(Path(path)) for path in (config.metadata_log_dir, *config.log_dirs)):
            if not self._new_cluster_id and self._other_addresses():  # a random id would be another cluster's
                raise NotFormattedError(
                    f"log directory {config.log_dirs[0]} is not formatted, and which cluster it is to belong to is not given"
                )
            cluster_id = self._new_cluster_id or uuid_to_text(new_id(entropy))
            format_directories(config, cluster_id, ignore_formatted=True, random_bytes=entropy, disk=disk)
        log_manager = LogManager(
            config.log_dirs,
            random_source=node.random,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            open_segments_max=node.descriptors.open_segments,
            on_directory_failure=self._directory_failed,
            disk=disk,
        )
        log_manager.lock()
        node.on_stop(log_manager.unlock)
        if metadata_path in self._failed_directories:
            raise StartError(f"the log directory of the metadata log, {metadata_path}, cannot be used")
        metadata_directory = self._lock_metadata_directory(log_manager, metadata_path)
        metas = (directory.meta for directory in (*log_manager.directories, metadata_directory))
        identity = next((meta for meta in metas if meta is not None), None)
        if identity is None:
            raise NotFormattedError(f"log directory {config.log_dirs[0]} is not formatted")
        if identity.node_id != config.node_id:
            raise StartError(f"log directory {config.log_dirs[0]} belongs to node {identity.node_id}, but node.id is {config.node_id}")
        if metadata_directory.meta is None:  # a voter that has lost its log must not act as that voter
            raise StartError(
                f"log directory {metadata_path} of the metadata log is not formatted, though others are: metadata.log.dir, or the first of "
                "log.dirs, has to be the one that has the log; if that is lost, run "
                f"`barnabas format -t {identity.cluster_id}{self._joining_words()} --ignore-formatted` "
                "with the same --config and --override (docs/operations.md)"
            )
        node.cluster_id = identity.cluster_id
        for directory in log_manager.online_directories:
            # A new disk besides the old ones, or one formatted by a version without directory ids (KIP-858).
            if directory.meta is None or directory.meta.directory_id is None:
                if directory.meta is None:
                    logger.info("log directory %s is empty and was formatted for this node", directory.path)
                directory.format(MetaProperties(node.cluster_id, node.node_id, new_id(entropy)))
        return log_manager, metadata_directory.meta.directory_id or ZERO_UUID

    def _other_addresses(self) -> list[Address]:
        """Returns the addresses of other nodes of the quorum; none for a quorum of one."""
        return [] if self.config.is_own_quorum_server and not self.config.controller_quorum_voters else other_addresses(self.config)

    async def _how_to_format(self, links: ClusterLinks | None) -> str:
        """Returns advice for the operator. Other nodes of the quorum are asked for the cluster id: with another one this node could
        never join them."""
        config, addresses = self.config, self._other_addresses()
        if links is None or not addresses:
            return HOW_TO_FORMAT
        from broker.cluster.cluster_ids import ask_cluster_ids, how_to_format

        connections = links.cluster_id_connections()
        self._node.on_stop(connections.close)
        told = await ask_cluster_ids(connections, addresses)
        return how_to_format(addresses, told, is_automatic=config.barnabas_auto_format, words=self._joining_words() if told else "")

    def _joining_words(self) -> str:
        """Returns options of the format command for a node that joins an existing cluster: a controller is not a voter before it is
        added."""
        joins = "controller" in self.config.process_roles and not self.config.controller_quorum_voters and self._other_addresses()
        return " --no-initial-controllers" if joins else ""

    def _lock_metadata_directory(self, log_manager: LogManager, path: Path) -> LogDirectory:
        """The directory of the metadata log: one of the log directories, which are locked, or one of its own."""
        directory = next((each for each in log_manager.directories if each.path == path), None)
        if directory is None:
            directory = LogDirectory(path, self._node.platform.disk)
            directory.lock()
            self._node.on_stop(directory.unlock)
            check_identities([*log_manager.directories, directory])
        return directory

    def _is_formatted(self, log_dir: Path) -> bool:
        try:
            return self._node.platform.disk.exists(log_dir / META_PROPERTIES)
        except OSError:
            return False  # locking it will show that

    async def _serve_metrics(self, quorum: QuorumServer, clients: ClientServer | None) -> None:
        if not self.config.barnabas_metrics_listener:
            return
        from broker.server.gauges import add_brokers_gauge, add_cluster_gauges, add_quorum_rates
        from broker.server.metrics_http import MetricsServer
        from broker.server.node_gauges import add_node_gauges
        from broker.server.readiness import why_not_ready

        metrics, clock = self._node.metrics, self._node.clock
        add_cluster_gauges(metrics, metadata=quorum.metadata, raft=quorum.raft)
        if self.config.barnabas_metrics_lag_series_max:
            add_brokers_gauge(metrics, metadata=quorum.metadata, raft=quorum.raft)
        traffic = None if quorum.links is None else quorum.links.quorum_traffic
        add_quorum_rates(metrics, raft=quorum.raft, clock=clock, commit_times=quorum.driver.commit_times.times, traffic=traffic)
        assert self._log_manager is not None, "not started"
        add_node_gauges(metrics, clock=clock, disk=self._node.platform.disk, directories=self._log_manager.directories)
        if quorum.authorizer is not None:
            from broker.server.authorizer_gauges import add_authorizer_gauges

            add_authorizer_gauges(metrics, quorum.authorizer, self._node.clock)
        if clients is not None:
            clients.add_gauges()
        host, _, port = self.config.barnabas_metrics_listener.rpartition(":")
        is_ready = partial(why_not_ready, quorum.metadata, quorum.raft, is_broker=clients is not None)
        refresh = None if clients is None or clients.group_lag is None else clients.group_lag.refresh
        server = MetricsServer(metrics, clock, is_ready, refresh)
        await server.start(host.strip("[]"), int(port))
        self._node.on_stop(server.close)

    # -- while it runs ----------------------------------------------------------------------------------------------

    def _directory_failed(self, path: Path, error: StorageError) -> None:
        """Take its partitions offline. A broker without the metadata log's directory, or without any directory, stops, as Kafka's does."""
        if self._clients is not None:
            self._clients.fail_directory(path, error)
        self._failed_directories.add(path)
        if path == Path(self.config.metadata_log_dir):
            self.request_stop(1, f"the log directory of the metadata log has failed: {path}")
        elif all(Path(directory) in self._failed_directories for directory in self.config.log_dirs):
            self.request_stop(1, "no log directory is left")
        elif self._clients is not None:
            self._clients.report_directory(path)
