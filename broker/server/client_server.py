"""ClientServer: builds, starts and stops the client side of a broker: its partitions, its coordinators, its handlers.

Only a node with the role of a broker has one. Owner: server.py.

Source: kafka.server.BrokerServer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from broker.background.background import Background
from broker.background.log_cleaner import LogCleaner
from broker.cluster.broker_lifecycle import BrokerLifecycle, LocalReplicas
from broker.cluster.controller_client import ControllerClient
from broker.coordination.coordinator_log import ReplicatedCoordinatorLog
from broker.dispatch import KafkaApis
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group_config import GroupConfig
from broker.handlers.services import Services
from broker.metadata.dynamic_configs import DynamicSettings
from broker.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, MetadataDelta
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.unreachable_brokers import UnreachableBrokers
from broker.metadata.watched_brokers import is_silence_noticed, watched_by
from broker.network.listeners import ConnectionRegistry, Listener
from broker.quorum.driver import QuorumDriver
from broker.replication.hosted_partitions import find_directory
from broker.replication.replica_manager import ReplicaManager
from broker.server.formatting import new_id
from broker.server.inter_broker import InterBroker
from broker.server.node import Node
from broker.server.quorum_server import QuorumServer
from broker.server.transaction_server import TransactionServer
from broker.worker.jobs import BACKGROUND_NICENESS, NICENESS, Worker
from config.cordoned import CORDONED_LOG_DIRS, cordoned_directories
from config.listener_settings import ListenerSettings
from protocol.compression import Compression
from storage.errors import StorageError
from storage.log_manager import LogManager

if TYPE_CHECKING:
    from broker.network.peer_login import PeerSecurity
    from broker.server.lag_gauges import GroupLag
    from broker.server.listener_security import ListenerSecurity
    from broker.telemetry.client_metrics import ClientMetricsManager


class ClientServer:
    """See the module's docstring. `quorum` has started; `listeners` are bound, and their ports are advertised. `to_brokers` is how the
    others' listener is connected to; `security` takes up changes of the listeners' dynamic configs."""

    def __init__(
        self,
        node: Node,
        quorum: QuorumServer,
        log_manager: LogManager,
        listeners: list[Listener],
        registry: ConnectionRegistry,
        to_brokers: PeerSecurity | None = None,
        security: ListenerSecurity | None = None,
    ) -> None:
        self._to_brokers = to_brokers
        self._listener_security = security
        self._node = node
        self._quorum = quorum
        self._metadata = quorum.metadata
        self._log_manager = log_manager
        self._listeners = listeners
        self._registry = registry
        self._settings = DynamicSettings(quorum.metadata.state, node.config, node.node_id)
        self._unreachable_brokers: UnreachableBrokers | None = None
        self._lifecycle: BrokerLifecycle | None = None  # once this broker is registered
        self._directory_ids: dict[str, bytes] = {}
        self._controller: ControllerClient | None = None
        self._inter_broker: InterBroker | None = None
        self._replica_manager: ReplicaManager | None = None
        self._cleaner: LogCleaner | None = None
        self._group_coordinator: GroupCoordinator | None = None
        self._transactions: TransactionServer | None = None
        self._verifies_transactions = node.config.transaction_partition_verification_enable
        self._worker: Worker | None = None
        self._client_metrics: ClientMetricsManager | None = None
        self._apis: KafkaApis | None = None
        self.group_lag: GroupLag | None = None
        """Set by `add_gauges`, unless barnabas.metrics.lag.series.max is 0. It is refreshed before a scrape."""

    async def start(self) -> None:
        """Recover the partitions' logs, register this broker, and build its parts. After that clients can connect, and wait for `serve`."""
        node, metadata, log_manager, security = self._node, self._metadata, self._log_manager, self._listener_security
        await open_logs(self._quorum.driver, metadata, log_manager, now_ms=node.clock.now_ms())
        node.on_stop(lambda: log_manager.close_clean(broker_epoch=metadata.broker_epoch))
        self._unreachable_brokers = self._make_unreachable_brokers()
        lifecycle = await self._register()
        controller = self._controller = self._make_controller_client()
        # Subscribed now, they see each partition once, with the leader epoch of this start.
        replica_manager = self._make_replica_manager(lifecycle)
        coordinator = self._group_coordinator = self._make_group_coordinator(replica_manager)
        transactions = self._transactions = self._make_transaction_server(replica_manager, coordinator, controller)
        cleaner = self._cleaner = self._make_cleaner()
        metadata.subscribe(self._take_over_settings)
        background = Background(node.config, node.clock, log_manager, replica_manager, node.run_blocking, cleaner, self._cleaner_backoff_ms)
        background.start()
        node.on_stop(background.stop)
        if cleaner is not None:
            node.on_stop(cleaner.stop)
        self._worker = self._make_worker(NICENESS)
        services = Services(
            config=node.config,
            node_id=node.node_id,
            cluster_id=node.cluster_id,
            clock=node.clock,
            random=node.random,
            metrics=node.metrics,
            metadata=metadata,
            controller=controller,
            replica_manager=replica_manager,
            group_coordinator=coordinator,
            log_manager=log_manager,
            run_blocking=node.run_blocking,
            worker=self._worker,
            controller_versions=lambda: self._quorum.controller_versions,
            unreachable_brokers=self._unreachable_brokers,
            client_metrics=self._find_client_metrics,
            kraft_version=lambda: self._quorum.driver.kraft_version,
            find_listener_fault=lambda overrides: None if security is None else security.find_fault(overrides),
            transaction_coordinator=transactions.coordinator,
            partition_additions=transactions.additions,
            authorizer=self._quorum.authorizer,
            quotas=node.quotas,
        )
        self._apis = KafkaApis(services, node.turns)
        node.on_stop(self._apis.close)
        node.on_stop(self._registry.close)  # connections are closed before the parts that they use
        self._take_over_listeners()
        for listener in self._listeners:
            listener.listen()  # all of them before any serves: another process may have taken a port meanwhile

    async def serve(self) -> None:
        """Accept connections."""
        assert self._apis is not None and self._lifecycle is not None, "not started"
        self._limit_connections()
        for listener in self._listeners:
            await listener.start(self._apis.handle, self._apis.refuse)
        self._node.on_stop(self._stop_listeners)
        self._node.on_stop(self._lifecycle.stop)  # while it still serves: other brokers become leaders first
        self._node.on_stop(self._quorum.shorten_retries)

    def add_gauges(self) -> None:
        """Add the gauges of replicas and groups to the node's metrics, after the start."""
        from broker.server.cleaner_gauges import add_cleaner_gauges
        from broker.server.gauges import add_broker_gauges
        from broker.server.partition_gauges import add_partition_gauges
        from broker.transactions.hanging_transactions import LATE_TRANSACTION_BUFFER_MS

        assert self._replica_manager is not None and self._group_coordinator is not None and self._inter_broker is not None, "not started"
        add_broker_gauges(
            self._node.metrics,
            replica_manager=self._replica_manager,
            group_coordinator=self._group_coordinator,
            metadata=self._metadata,
            following=self._inter_broker,
            clock=self._node.clock,
            late_transaction_ms=self._node.config.transaction_max_timeout_ms + LATE_TRANSACTION_BUFFER_MS,
        )
        add_partition_gauges(self._node.metrics, self._replica_manager)
        self._add_group_lag(self._replica_manager, self._group_coordinator)
        assert self._transactions is not None, "not started"
        self._transactions.add_gauges(self._node.metrics, self._node.clock)
        if self._cleaner is not None:
            add_cleaner_gauges(self._node.metrics, self._cleaner, self._log_manager, self._node.clock)

    def _add_group_lag(self, replica_manager: ReplicaManager, coordinator: GroupCoordinator) -> None:
        config, links = self._node.config, self._quorum.links
        if not config.barnabas_metrics_lag_series_max:
            return
        from broker.server.lag_gauges import GroupLag

        connections = None if links is None else links.broker_connections("group-lag")
        if connections is not None:
            self._node.on_stop(connections.close)
        self.group_lag = GroupLag(
            self._metadata,
            replica_manager,
            coordinator,
            connections,
            listener_name=config.inter_broker_listener_name,
            series_max=config.barnabas_metrics_lag_series_max,
        )
        self._node.metrics.add_collector(self.group_lag.collect)

    def prepare_internal_topics(self) -> None:
        """As Broker.prepare_internal_topics."""
        assert self._controller is not None, "not started"
        config = self._node.config
        replicas = {
            GROUP_METADATA_TOPIC: config.offsets_topic_replication_factor,
            TRANSACTION_STATE_TOPIC: config.transaction_state_log_replication_factor,
        }
        for topic, replicas_count in replicas.items():
            self._controller.prepare_internal_topic(topic, max(replicas_count, len(config.controller_quorum_voters)))

    def fail_directory(self, path: Path, error: StorageError) -> None:
        """Take the partitions in this log directory offline."""
        if self._replica_manager is not None:
            self._replica_manager.fail_log_dir(path, error)

    def report_directory(self, path: Path) -> None:
        """Report to the controller that this log directory has failed."""
        if self._lifecycle is not None and self._replica_manager is not None:
            lost = [
                (partition.topic, partition.partition)
                for partition in self._replica_manager.partitions()
                if partition.is_offline and partition.log.log_dir == str(path)
            ]
            self._lifecycle.lose_directory(self._directory_ids[str(path)], lost)

    # -- the start, step by step ----------------------------------------------------------------------------------

    def _make_unreachable_brokers(self) -> UnreachableBrokers | None:
        """Returns None if there are no other brokers to probe, or if barnabas.fast.fencing is off."""
        node, metadata, links = self._node, self._metadata, self._quorum.links
        if links is None or not node.config.barnabas_fast_fencing:
            return None
        unreachable_brokers = UnreachableBrokers(node.clock, metadata.brokers)
        find_address = partial(metadata.find_address, listener_name=node.config.inter_broker_listener_name)
        leader_probe = links.leader_probe(find_address, unreachable_brokers.add)
        node.on_stop(leader_probe.close)
        unreachable_brokers.probe = leader_probe.begin
        metadata.subscribe(unreachable_brokers.on_metadata_delta)
        return unreachable_brokers

    async def _register(self) -> BrokerLifecycle:
        """Register this broker with its advertised addresses, and become leader of its partitions where possible."""
        node, quorum, log_manager = self._node, self._quorum, self._log_manager
        directory_ids = self._directory_ids = {
            str(directory.path): directory.meta.directory_id
            for directory in log_manager.online_directories
            if directory.meta is not None and directory.meta.directory_id is not None
        }
        ports = {listener.name: listener.port for listener in self._listeners}
        endpoints = [
            endpoint._replace(port=endpoint.port or ports[endpoint.listener_name]) for endpoint in node.config.client_advertised_listeners
        ]
        lifecycle = BrokerLifecycle(
            quorum.channel,
            self._metadata,
            node.config,
            node.clock,
            metadata_offset=lambda: quorum.publisher.heard.offset - 1,
            is_alone=list(quorum.driver.voter_ids) == [node.node_id],
            notices_silence=quorum.links is not None and quorum.links.silence_ms > 0,
            on_untold_directory=lambda: node.request_stop(1, "the controller could not be told of a failed log directory"),
        )
        node.on_stop(lifecycle.stop)
        replicas = LocalReplicas(
            directory_ids={(log.topic, log.partition): directory_ids[log.log_dir] for log in log_manager.logs()},
            online_ids=frozenset(directory_ids.values()),
            has_offline_directories=len(log_manager.online_directories) < len(log_manager.directories),
        )
        await node.wait_unless_stopped(
            lifecycle.start(
                incarnation_id=new_id(node.platform.entropy),
                endpoints=endpoints,
                log_dirs=list(directory_ids.values()),
                replicas=replicas,
                previous_epoch=log_manager.clean_shutdown_epoch,
                cordoned_log_dirs=self._cordon(),
            )
        )
        self._lifecycle = lifecycle
        self._watch_silence(lifecycle)
        return lifecycle

    def _watch_silence(self, lifecycle: BrokerLifecycle) -> None:
        """Watch other brokers for answers, and report silent ones to the controller."""
        metadata, links, listener_name = self._metadata, self._quorum.links, self._node.config.inter_broker_listener_name
        if links is None or not links.silence_ms:
            return

        def find_targets() -> dict[int, tuple[str, int]]:
            watched = watched_by(metadata.node_id, metadata.brokers) if is_silence_noticed(metadata.state) else []
            addresses = {node_id: metadata.find_address(node_id, listener_name) for node_id in watched}
            return {node_id: address for node_id, address in addresses.items() if address is not None}

        watch = links.silence_watch("broker", find_targets, lifecycle.report_silent)
        watch.start()
        self._node.on_stop(watch.close)

    def _make_controller_client(self) -> ControllerClient:
        """Returns the client of the active controller. It has its own channel, so that heartbeats do not wait for clients' requests."""
        node = self._node
        channel = self._quorum.make_channel(node.config.controller_socket_timeout_ms)
        controller = ControllerClient(channel, self._metadata, node.config, node.clock)
        node.on_stop(controller.close)
        return controller

    def _make_replica_manager(self, lifecycle: BrokerLifecycle) -> ReplicaManager:
        node, metadata = self._node, self._metadata
        inter_broker = self._inter_broker = InterBroker(
            node.config, metadata, self._quorum.channel, node.platform, self._unreachable_brokers, self._to_brokers
        )
        replica_manager = ReplicaManager(
            config=node.config,
            node_id=node.node_id,
            clock=node.clock,
            metrics=node.metrics,
            metadata=metadata,
            log_manager=self._log_manager,
            run_blocking=node.run_blocking,
            alter_isr=inter_broker.alter_isr,
            fetchers=inter_broker.fetchers,
            on_log_dir_failure=self._log_manager.mark_offline,
            on_append_bug=lambda: node.request_stop(1, "an append failed unexpectedly"),
            assign_directory=lifecycle.assign_directory,
        )
        self._replica_manager = inter_broker.replica_manager = replica_manager
        node.on_stop(replica_manager.stop)
        node.on_stop(inter_broker.stop)
        metadata.subscribe(replica_manager.apply)
        replica_manager.end_loading()
        return replica_manager

    def _make_group_coordinator(self, replica_manager: ReplicaManager) -> GroupCoordinator:
        node, metadata, config = self._node, self._metadata, self._node.config
        coordinator_log = ReplicatedCoordinatorLog(
            GROUP_METADATA_TOPIC,
            replica_manager,
            metadata,
            default_partition_count=config.offsets_topic_num_partitions,
            compression=Compression(config.offsets_topic_compression_codec),
            run_blocking=node.run_blocking,
        )
        coordinator = GroupCoordinator(GroupConfig.from_server(config), coordinator_log, node.clock, node.random, metadata)
        coordinator.start()
        node.on_stop(coordinator.stop)
        metadata.subscribe(coordinator.on_metadata_delta)
        return coordinator

    def _make_transaction_server(
        self, replica_manager: ReplicaManager, group_coordinator: GroupCoordinator, controller: ControllerClient
    ) -> TransactionServer:
        transactions = TransactionServer(
            self._node,
            self._metadata,
            self._quorum.links,
            replica_manager=replica_manager,
            group_coordinator=group_coordinator,
            producer_ids=controller.producer_ids,
            is_verification_enabled=lambda: self._verifies_transactions,
        )
        transactions.start()
        self._node.on_stop(transactions.stop)
        self._metadata.subscribe(transactions.on_metadata_delta)
        return transactions

    def _make_cleaner(self) -> LogCleaner | None:
        """Returns None if log.cleaner.enable is false."""
        node = self._node
        if not node.config.log_cleaner_enable:
            return None
        workers = [self._make_worker(BACKGROUND_NICENESS) for _ in range(node.config.log_cleaner_threads)]
        return LogCleaner(self._settings.number, node.clock, self._log_manager, workers, node.platform.disk)

    def _find_client_metrics(self) -> ClientMetricsManager:
        if self._client_metrics is None:
            from broker.telemetry.client_metrics import ClientMetricsManager  # late: few clusters ever ask clients for metrics

            node = self._node
            self._client_metrics = ClientMetricsManager(
                self._metadata.state, node.clock, lambda: new_id(node.platform.entropy), node.config.telemetry_max_bytes
            )
            node.metrics.add_collector(self._client_metrics.samples)
        return self._client_metrics

    def _cleaner_backoff_ms(self) -> int:
        return max(int(self._settings.number("log.cleaner.backoff.ms")), 1)

    def _take_over_settings(self, delta: MetadataDelta) -> None:
        """Called when brokers' dynamic configs have changed: pass frequently used ones to the parts that use them."""
        if not delta.changed_broker_configs:
            return
        number = self._settings.number
        self._limit_connections()
        self._take_over_listeners()
        self._log_manager.set_producer_id_expiration(int(number("producer.id.expiration.ms")))
        self._verifies_transactions = self._settings.flag("transaction.partition.verification.enable")
        assert self._inter_broker is not None and self._lifecycle is not None, "they are there before clients are"
        self._inter_broker.take_over_settings()
        self._lifecycle.cordon_directories(self._cordon())

    def _take_over_listeners(self) -> None:
        if self._listener_security is not None:
            self._listener_security.take_over(self._metadata.state.broker_overrides(str(self._node.node_id)))

    def _limit_connections(self) -> None:
        """Set the present limits of connections and of new ones a second. A listener without limits of its own has the broker's."""
        number, config, limits, rates = self._settings.number, self._node.config, self._registry.limits, self._node.quotas.connection_rates
        limits.set_limits(
            max_connections=min(int(number("max.connections")), config.barnabas_max_connections, self._node.descriptors.connections),
            max_connections_per_ip=min(int(number("max.connections.per.ip")), config.barnabas_max_connections_per_ip),
        )
        rates.set_broker_limit(number("max.connection.creation.rate"))
        for listener in self._listeners:
            own = ListenerSettings(config.texts, listener.name)
            count, rate = (
                float(str(own.value(name))) if own.is_own(name) else number(name)
                for name in ("max.connections", "max.connection.creation.rate")
            )
            limits.set_listener_limit(listener.name, int(count))
            rates.set_listener_limit(listener.name, rate)

    def _cordon(self) -> list[bytes]:
        """Create no new logs in the directories that are cordoned now. Returns the ids of the online ones among them."""
        cordoned = cordoned_directories(self._settings.elements(CORDONED_LOG_DIRS), self._node.config.log_dirs)
        self._log_manager.cordon(cordoned)
        return [
            self._directory_ids[str(directory.path)]
            for directory in self._log_manager.online_directories
            if directory.is_cordoned and str(directory.path) in self._directory_ids
        ]

    def _make_worker(self, niceness: int) -> Worker:
        worker = self._node.platform.make_worker(self._node.run_blocking, niceness)
        self._node.on_stop(worker.close)
        return worker

    def _stop_listeners(self) -> None:
        for listener in self._listeners:
            listener.stop()


async def open_logs(quorum: QuorumDriver, metadata: MetadataCache, log_manager: LogManager, *, now_ms: int) -> None:
    """Open the partitions' logs when the metadata is up to date. A replica that is not this broker's any more is renamed to a stray."""
    await quorum.caught_up()
    log_manager.open(
        config_of=metadata.log_config, topic_id_of=_topic_ids(metadata), directory_id_of=_directory_ids(metadata), now_ms=now_ms
    )


def _topic_ids(metadata: MetadataCache) -> Callable[[str, int], bytes | None]:
    """Returns a function from a partition to its topic id, if the partition has a replica here."""

    def topic_id_of(name: str, index: int) -> bytes | None:
        topic, image = metadata.find_topic(name), metadata.find_partition(name, index)
        return None if topic is None or image is None or metadata.node_id not in image.replicas else topic.topic_id

    return topic_id_of


def _directory_ids(metadata: MetadataCache) -> Callable[[str, int], bytes | None]:
    def directory_id_of(name: str, index: int) -> bytes | None:
        topic = metadata.find_topic(name)
        if topic is None or index >= len(topic.partitions):
            return None
        return find_directory(topic.partitions[index], metadata.node_id)

    return directory_id_of
