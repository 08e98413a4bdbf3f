"""The running node: builds every collaborator, starts and stops them in order. Nothing else in broker/ wires objects together.

Start: take the ports (a taken one stops us at once), lock the log directories, load the metadata log, recover the partitions'
logs, elect ourselves, and only then accept connections. Stop: the reverse.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.background import Background
from broker.context import ConnectionFacts, ListenerFacts
from broker.controller.channel import ControllerChannel
from broker.controller.controller import Controller
from broker.controller.local_controller import LocalController
from broker.coordination.coordinator_log import ReplicatedCoordinatorLog
from broker.descriptors import divide_descriptors
from broker.dispatch import KafkaApis
from broker.formatting import format_directories, new_id
from broker.garbage import CollectionPause
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group_config import GroupConfig
from broker.inter_broker import InterBroker
from broker.lifecycle.broker_lifecycle import BrokerLifecycle, LocalReplicas
from broker.lifecycle.controller_client import ControllerClient
from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import GROUP_METADATA_TOPIC
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.prepared_records import BatchEncoder
from broker.metadata.publisher import MetadataPublisher
from broker.metadata.record_format import read_metadata_batches
from broker.metadata.snapshot import read_bootstrap_records
from broker.metadata.snapshot_generator import SnapshotGenerator
from broker.metadata.suspects import Suspects
from broker.metrics import Metrics
from broker.network.listeners import ConnectionRegistry, Listener, limits_by_address
from broker.network.listening_sockets import ListenError
from broker.network.sockets import SocketOptions
from broker.platform import Platform, start_threads, system_platform
from broker.quorum.driver import QuorumDriver
from broker.quorum.opening import RecordFormats, open_quorum
from broker.quorum.voters import ReplicaKey
from broker.replication.replica_manager import ReplicaManager
from broker.services import ControllerServices, Services
from broker.turns import Turns
from broker.worker.jobs import Worker
from config.endpoints import Endpoint
from config.server import ServerConfig
from protocol.apis import ListenerKind
from protocol.codec_in_turns import clear_arrays_in_turns
from protocol.compression import Compression
from protocol.errors import KafkaError
from protocol.uuids import ZERO_UUID, uuid_to_text
from storage.errors import StorageError
from storage.files import META_PROPERTIES
from storage.log import Log
from storage.log_manager import LogManager
from storage.meta_properties import MetaProperties

if TYPE_CHECKING:
    from broker.cluster.controller_route import ControllerRoute
    from broker.cluster.links import ClusterLinks
    from broker.quorum.raft import Raft

log = logging.getLogger("barnabas.server")

WAIT_FOREVER_MS = 2**31
"""From here on server.max.startup.time.ms, which Kafka sets to the end of time, bounds nothing."""

UNCHECKED_ACLS = (
    "the cluster has access control entries (ACLs), which this node would not check: there is no authorizer yet. It serves all the same "
    "with barnabas.serve.without.authorizer=true"
)

HOW_TO_FORMAT = "run `barnabas format -t $(barnabas random-uuid)` with the same --config and --override, or set barnabas.auto.format=true"


class StartError(Exception):
    """The broker can't start; the message is one line for the operator."""


class Broker:
    """One node. `start` returns once it serves; `stop` leaves its directories cleanly closed."""

    def __init__(self, config: ServerConfig, *, new_cluster_id: str = "", platform: Platform | None = None) -> None:
        """`new_cluster_id` is for directories that are formatted at this start; "" stands for a random one. `platform` is what the node
        runs on, by default this machine."""
        self.config = config
        self._new_cluster_id = new_cluster_id
        self.metrics = Metrics()
        self._platform = platform = platform or system_platform(asyncio.get_running_loop())
        self._loop = platform.loop
        self._clock = platform.clock
        self._random = random.Random(int.from_bytes(platform.entropy(16)))
        self._executor = platform.executor
        self._collection_pause = CollectionPause()
        self._stopped: asyncio.Future[int] = self._loop.create_future()
        self._undo: list[Callable[[], Any]] = []  # what `stop` does, last first; each may return an awaitable
        self.listeners: list[Listener] = []
        self.controller_listeners: list[Listener] = []
        self._registry: ConnectionRegistry | None = None
        self._replica_manager: ReplicaManager | None = None
        self._inter_broker: InterBroker | None = None
        self._raft: Raft | None = None
        self._controller: ControllerClient | None = None
        self._local_controller: LocalController | None = None
        self._lifecycle: BrokerLifecycle | None = None  # once this broker is registered
        self._directory_ids: dict[str, bytes] = {}
        self._links: ClusterLinks | None = None
        self._routes: list[ControllerRoute] = []
        on_busy = partial(self._collection_pause.note, "requests")
        self._turns = Turns(self._loop.call_soon, self._clock.monotonic_us, on_busy, clear_arrays_in_turns)
        self._apis: KafkaApis | None = None
        self._log_manager: LogManager | None = None
        self._metadata_log: Log | None = None
        self._controller_apis: KafkaApis | None = None
        self._failed_directories: set[Path] = set()
        self._suspects: Suspects | None = None
        self._descriptors = divide_descriptors(platform.descriptors_max)
        self.node_id = config.node_id
        self.cluster_id = ""
        self.stop_reason = ""  # once it is asked to stop

    async def start(self) -> None:
        """Raises StartError; what was begun is then undone."""
        try:
            await self._start()
        except StartError:
            await self.stop()
            raise
        except (ListenError, StorageError, KafkaError, OSError) as e:
            await self.stop()
            raise StartError(str(e)) from e

    async def stop(self) -> None:
        """Stop serving and close everything, in the reverse order of the start."""
        while self._undo:
            try:
                outcome = self._undo.pop()()
                if outcome is not None:
                    await outcome
            except Exception:
                log.exception("stopping went on after an error")

    def idle_ms(self) -> int:
        """For how long no client has sent anything."""
        return self._registry.idle_ms() if self._registry is not None else 0

    def forget_unused_codecs(self) -> None:
        if self._apis is not None:
            self._apis.forget_unused_routes()

    def forget_recent_batches(self) -> None:
        """Drop the positions of batches that active segments remember: hundreds of numbers each, from wherever memory was free then."""
        if self._metadata_log is not None:
            self._metadata_log.segments.active.forget_recent()
        if self._log_manager is not None:
            for log in self._log_manager.logs():
                log.segments.active.forget_recent()

    def prepare_for_large_works(self) -> None:
        """Make what must not come about among their objects; a place for these is found once there was one."""
        start_threads(self._executor)
        pause = self._collection_pause

        def find_memory() -> None:
            from broker.large_works_memory import LargeWorksMemory  # ctypes takes 20 ms to import: not on the loop

            pause.memory = LargeWorksMemory()

        pause.clock = self._clock
        pause.on_large_work = lambda: self._executor.submit(find_memory)

    async def wait_stopped(self) -> int:
        """The exit code, once someone asked the broker to stop."""
        return await self._stopped

    def request_stop(self, exit_code: int, reason: str) -> None:
        """Let `wait_stopped` return; the log tells `reason`, a signal's name or what failed. Later calls change nothing."""
        if not self._stopped.done():
            self.stop_reason = reason
            self._stopped.set_result(exit_code)

    def prepare_for_groups(self) -> None:
        """Begin to create the topic of committed offsets now. Else the first consumer group does, whose client asks again later."""
        assert self._controller is not None, "the broker was not started"
        self._controller.ensure_internal_topic(GROUP_METADATA_TOPIC)

    # -- the start, step by step ----------------------------------------------------------------------------------

    async def _start(self) -> None:
        config = self.config
        self._undo.append(self._executor.shutdown)
        self._registry = registry = self._make_registry()
        if config.controller_listener_names:
            from broker.cluster.links import ClusterLinks  # a node on its own starts without it

            self._links = ClusterLinks(self._platform, registry.pool, config)
            self._undo.append(self._links.close)
        for endpoint in config.controller_listeners:
            self.controller_listeners.append(self._bind(endpoint, registry, ListenerKind.CONTROLLER))
        for endpoint in config.client_listeners:
            self.listeners.append(self._bind(endpoint, registry))
        self._log_manager = log_manager = self._open_directories()
        metadata, quorum, channel, publisher = await self._load_metadata(log_manager)
        if "broker" not in config.process_roles:
            await self._serve_metrics(metadata, None)
            return
        await open_logs(quorum, metadata, log_manager, now_ms=self._clock.now_ms())
        self._undo.append(lambda: log_manager.close_clean(broker_epoch=metadata.broker_epoch))
        if self._links is not None and config.barnabas_fast_fencing:
            self._suspects = Suspects(self._clock, metadata.brokers)
            find_address = partial(metadata.find_address, listener_name=config.inter_broker_listener_name)
            leader_check = self._links.leader_check(find_address, self._suspects.add)
            self._undo.append(leader_check.close)
            self._suspects.look_at = leader_check.begin
            metadata.subscribe(self._suspects.on_metadata_delta)
        is_alone = list(quorum.voter_ids) == [self.node_id]
        lifecycle = await self._register(channel, metadata, publisher, log_manager, is_alone=is_alone)
        forwarding = self._make_channel(quorum, config.controller_socket_timeout_ms)
        controller = self._controller = ControllerClient(forwarding, metadata, config, self._clock, on_busy=self._collection_pause.note)
        self._undo.append(controller.close)
        # Subscribed now, they see each partition once, with the leader epoch of this start.
        replica_manager = self._make_replica_manager(metadata, log_manager, channel, lifecycle)
        coordinator = self._make_coordinator(metadata, replica_manager)
        background = Background(config, self._clock, log_manager, replica_manager, self.run_blocking)
        background.start()
        self._undo.append(background.stop)
        services = Services(
            config=config,
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            clock=self._clock,
            random=self._random,
            metrics=self.metrics,
            metadata=metadata,
            controller=controller,
            replica_manager=replica_manager,
            group_coordinator=coordinator,
            log_manager=log_manager,
            run_blocking=self.run_blocking,
            worker=self._make_worker(),
            controller_versions=lambda: self._routes[0].versions if self._routes else None,  # the one of the heartbeats
            suspects=self._suspects,
            kraft_version=lambda: quorum.kraft_version,
        )
        await self._serve(services, registry)
        self._undo.append(lifecycle.stop)  # while it still serves: others take over first
        self._undo += [route.hurry for route in self._routes]

    def _make_registry(self) -> ConnectionRegistry:
        config = self.config
        registry = ConnectionRegistry(
            self._loop,
            self._clock,
            self._executor,
            self._platform.network,
            max_request_memory=config.queued_request_bytes_limit,
            max_connections=min(config.connections_limit, self._descriptors.connections),
            max_connections_per_ip=config.connections_per_ip_limit,
            max_connections_of_ip=limits_by_address(config.max_connections_per_ip_overrides),
            idle_ms=config.connections_max_idle_ms,
            frame_deadline_ms=config.barnabas_frame_deadline_ms,
            busy_poll_us=config.barnabas_busy_poll_us,
            on_count=self.metrics.connection_count,
        )
        self._undo.append(registry.close)
        return registry

    def _bind(self, endpoint: Endpoint, registry: ConnectionRegistry, kind: ListenerKind = ListenerKind.CLIENT) -> Listener:
        facts = ListenerFacts(
            endpoint.listener_name,
            kind=kind,
            security_protocol=endpoint.security_protocol,
            max_frame_size=self.config.socket_request_max_bytes,
        )
        listener = Listener(
            facts,
            registry,
            SocketOptions(
                backlog=self.config.socket_listen_backlog_size,
                send_buffer_bytes=self.config.socket_send_buffer_bytes,
                receive_buffer_bytes=self.config.socket_receive_buffer_bytes,
            ),
        )
        self._undo.append(listener.stop)
        listener.bind(endpoint.host, endpoint.port)
        return listener

    def _open_directories(self) -> LogManager:
        """Lock the log directories and find out who we are, formatting empty ones where that is asked for."""
        config = self.config
        if config.barnabas_auto_format and not any(self._is_formatted(Path(path)) for path in config.log_dirs):
            cluster_id = self._new_cluster_id or uuid_to_text(new_id(self._platform.entropy))
            platform = self._platform
            format_directories(config, cluster_id, ignore_formatted=True, random_bytes=platform.entropy, disk=platform.disk)
        log_manager = LogManager(
            config.log_dirs,
            random_source=self._random,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            open_segments_max=self._descriptors.open_segments,
            on_directory_failure=self._directory_failed,
            disk=self._platform.disk,
        )
        log_manager.lock()
        self._undo.append(log_manager.unlock)
        if Path(config.metadata_log_dir) in self._failed_directories:
            raise StartError(f"the log directory of the metadata log, {config.metadata_log_dir}, cannot be used")
        identity = next((d.meta for d in log_manager.directories if d.meta is not None), None)
        if identity is None:
            raise StartError(f"log directory {config.log_dirs[0]} is not formatted: {HOW_TO_FORMAT}")
        if identity.node_id != config.node_id:
            raise StartError(f"log directory {config.log_dirs[0]} belongs to node {identity.node_id}, but node.id is {config.node_id}")
        self.cluster_id = identity.cluster_id
        for directory in log_manager.online_directories:
            # A new disk beside the old ones, or one that a version without directory ids formatted (KIP-858).
            if directory.meta is None or directory.meta.directory_id is None:
                directory.format(MetaProperties(self.cluster_id, self.node_id, new_id(self._platform.entropy)))
        return log_manager

    def _is_formatted(self, log_dir: Path) -> bool:
        try:
            return self._platform.disk.exists(log_dir / META_PROPERTIES)
        except OSError:
            return False  # locking it will tell

    async def _load_metadata(self, log_manager: LogManager) -> tuple[MetadataCache, QuorumDriver, ControllerChannel, MetadataPublisher]:
        """Take part in the metadata quorum, and hear all that it has committed."""
        config = self.config
        cache = MetadataCache(ClusterState(), cluster_id=self.cluster_id, node_id=self.node_id, config=config)
        root = Path(config.metadata_log_dir)
        peers = None if self._links is None else self._links.quorum_peers()
        quorum = open_quorum(
            root,
            config,
            ReplicaKey(self.node_id, _directory_id(log_manager, root)),
            RecordFormats(BatchEncoder(lambda: cache.state.metadata_version), read_metadata_batches),
            cluster_id=self.cluster_id,
            clock=self._clock,
            random_source=self._random,
            call_soon=self._loop.call_soon,
            run_blocking=self.run_blocking,
            disk=self._platform.disk,
            peers=peers,
            on_failure=self._quorum_failed,
        )
        self._undo.append(quorum.log.close)
        self._metadata_log = quorum.log.log
        if self._links is not None and peers is not None:
            self._links.watch_leader(quorum.driver, peers, partial(cache.find_address, listener_name=config.inter_broker_listener_name))
        self._raft = quorum.replica.raft
        snapshots = SnapshotGenerator(
            quorum.log, cache.state, config, self._clock, self.run_blocking, quorum_records_at=quorum.replica.raft.kraft_records_at
        )
        self._undo.append(snapshots.close)
        publisher = MetadataPublisher(cache, snapshots)
        quorum.driver.register(publisher)
        controller = self._make_local_controller(cache, quorum.driver)
        self._undo.append(quorum.driver.close)
        quorum.driver.start()
        if self._controller_apis is not None:
            for listener in self.controller_listeners:
                listener.listen()
                await listener.start(self._controller_apis.handle)
        await self._unless_stopped(quorum.driver.caught_up())
        self._refuse_access_control(cache, publisher)
        await publisher.shorten_start()
        if self._links is None and controller is not None:
            await controller.wait_first_records_committed()
        channel = self._make_channel(quorum.driver, config.broker_session_timeout_ms)
        if self.controller_listeners:
            self._register_controller(channel)
        return cache, quorum.driver, channel, publisher

    def _refuse_access_control(self, cache: MetadataCache, publisher: MetadataPublisher) -> None:
        """Kafka's nodes with an authorizer check what is denied; a node that does not would give it away."""
        if self.config.barnabas_serve_without_authorizer:
            return
        if cache.state.kept.has_access_control_entries:
            raise StartError(UNCHECKED_ACLS)
        publisher.on_access_control = lambda: self.request_stop(1, UNCHECKED_ACLS)

    def _register_controller(self, channel: ControllerChannel) -> None:
        from broker.lifecycle.controller_registration import ControllerRegistrar, advertised_endpoints

        ports = {listener.name: listener.port for listener in self.controller_listeners}
        endpoints = advertised_endpoints(self.config, ports)
        incarnation_id = new_id(self._platform.entropy)
        registrar = ControllerRegistrar(channel, self._clock, node_id=self.node_id, incarnation_id=incarnation_id, endpoints=endpoints)
        registrar.start()
        self._undo.append(registrar.stop)

    def _make_local_controller(self, cache: MetadataCache, quorum: QuorumDriver) -> LocalController | None:
        """The controller in this process; it also serves other nodes where they can reach it."""
        config = self.config
        if "controller" not in config.process_roles:
            return None
        controller = self._local_controller = LocalController(
            lambda: self._make_controller(cache.state.copy()),
            quorum,
            self._clock,
            node_id=self.node_id,
            bootstrap=lambda: read_bootstrap_records(Path(config.metadata_log_dir), self._platform.disk),
            is_alone=self._links is None,
            listener_name=config.inter_broker_listener_name,
            prove=None if self._links is None or self._links.crash_detector is None else self._links.crash_detector.prove,
            on_busy=self._collection_pause.note,
        )
        quorum.register(controller)
        self._undo.append(controller.close)
        if self.controller_listeners:
            services = ControllerServices(
                self._clock,
                self.metrics,
                cache,
                controller,
                lambda: controller.is_active,
                quorum.handle_request,
                self._handle_forwarded,
                quorum,
            )
            self._controller_apis = KafkaApis(services, self._turns, ListenerKind.CONTROLLER)
            self._undo.append(self._controller_apis.close)
        return controller

    def _make_channel(self, quorum: QuorumDriver, retry_timeout_ms: int) -> ControllerChannel:
        """A way to the active controller: directly where no other node can be it."""
        if self._links is None:
            assert self._local_controller is not None, "a node that reaches no other is its own controller"
            return self._local_controller
        route = self._links.controller_route(quorum, self._local_controller, retry_timeout_ms=retry_timeout_ms)
        self._undo.append(route.close)
        self._routes.append(route)
        return route

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Wait for others. Raises StartError when it takes too long, or this node is asked to stop first."""
        timeout_ms = self.config.server_max_startup_time_ms
        task = self._loop.create_task(waiting)
        timeout_s = timeout_ms / 1000 if timeout_ms < WAIT_FOREVER_MS else None
        try:
            await asyncio.wait((task, self._stopped), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise StartError(f"stopped by {self.stop_reason}" if self._stopped.done() else "the start took too long")
            task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _make_controller(self, state: ClusterState) -> Controller:
        return Controller(
            self.config,
            node_id=self.node_id,
            random_source=self._random,
            replicas_max=self._descriptors.partitions,
            state=state,
            cluster_id=self.cluster_id,
            now_ms=self._clock.monotonic_ms(),
        )

    def _quorum_failed(self, error: Exception) -> None:
        if self._local_controller is not None:
            self._local_controller.fail(error)
        self.request_stop(1, "the metadata log failed")

    def _make_worker(self) -> Worker:
        worker = self._platform.make_worker(self.run_blocking)
        self._undo.append(worker.close)
        return worker

    def _make_replica_manager(
        self, metadata: MetadataCache, log_manager: LogManager, channel: ControllerChannel, lifecycle: BrokerLifecycle
    ) -> ReplicaManager:
        inter_broker = self._inter_broker = InterBroker(self.config, metadata, channel, self._platform, self._suspects)
        replica_manager = ReplicaManager(
            config=self.config,
            node_id=self.node_id,
            clock=self._clock,
            metrics=self.metrics,
            metadata=metadata,
            log_manager=log_manager,
            run_blocking=self.run_blocking,
            alter_isr=inter_broker.alter_isr,
            fetchers=inter_broker.fetchers,
            on_log_dir_failure=log_manager.mark_offline,
            on_append_bug=lambda: self.request_stop(1, "an append failed unexpectedly"),
            on_misplaced=lifecycle.assign_directory,
            on_busy=self._collection_pause.note,
        )
        self._replica_manager = inter_broker.replica_manager = replica_manager
        self._undo.append(replica_manager.stop)
        self._undo.append(inter_broker.stop)
        metadata.subscribe(replica_manager.apply)
        replica_manager.end_loading()
        return replica_manager

    def _make_coordinator(self, metadata: MetadataCache, replica_manager: ReplicaManager) -> GroupCoordinator:
        config = self.config
        coordinator_log = ReplicatedCoordinatorLog(
            GROUP_METADATA_TOPIC,
            replica_manager,
            metadata,
            default_partition_count=config.offsets_topic_num_partitions,
            compression=Compression(config.offsets_topic_compression_codec),
            run_blocking=self.run_blocking,
        )
        coordinator = GroupCoordinator(GroupConfig.from_server(config), coordinator_log, self._clock, self._random, metadata)
        coordinator.start()
        self._undo.append(coordinator.stop)
        metadata.subscribe(coordinator.on_metadata_delta)
        return coordinator

    async def _register(
        self, channel: ControllerChannel, metadata: MetadataCache, publisher: MetadataPublisher, log_manager: LogManager, *, is_alone: bool
    ) -> BrokerLifecycle:
        """Register this broker with the addresses that clients are told, and become leader of what it can lead."""
        directory_ids = self._directory_ids = {
            str(directory.path): directory.meta.directory_id
            for directory in log_manager.online_directories
            if directory.meta is not None and directory.meta.directory_id is not None
        }
        ports = {listener.name: listener.port for listener in self.listeners}
        endpoints = [
            endpoint._replace(port=endpoint.port or ports[endpoint.listener_name]) for endpoint in self.config.client_advertised_listeners
        ]
        lifecycle = BrokerLifecycle(
            channel, metadata, self.config, self._clock, metadata_offset=lambda: publisher.heard.offset - 1, is_alone=is_alone
        )
        self._undo.append(lifecycle.stop)
        replicas = LocalReplicas(
            directory_ids={(log.topic, log.partition): directory_ids[log.log_dir] for log in log_manager.logs()},
            online_ids=frozenset(directory_ids.values()),
            has_offline_directories=len(log_manager.online_directories) < len(log_manager.directories),
        )
        log_dirs = list(directory_ids.values())
        incarnation_id = new_id(self._platform.entropy)
        await self._unless_stopped(
            lifecycle.start(
                incarnation_id=incarnation_id,
                endpoints=endpoints,
                log_dirs=log_dirs,
                replicas=replicas,
                previous_epoch=log_manager.clean_shutdown_epoch,
            )
        )
        self._lifecycle = lifecycle
        return lifecycle

    async def _serve(self, services: Services, registry: ConnectionRegistry) -> None:
        apis = self._apis = KafkaApis(services, self._turns)
        self._undo.append(apis.close)
        self._undo.append(registry.close)  # connections end before what they wait for does
        for listener in self.listeners:
            listener.listen()  # all of them before any serves: another process may have been faster since they were bound
        await self._serve_metrics(services.metadata, services)
        for listener in self.listeners:
            await listener.start(apis.handle)
        self._undo.append(self._stop_listeners)

    def _stop_listeners(self) -> None:
        for listener in self.listeners:
            listener.stop()

    async def _serve_metrics(self, metadata: MetadataCache, services: Services | None) -> None:
        """`services` are a broker's."""
        if not self.config.barnabas_metrics_listener:
            return
        from broker.metrics_gauges import add_broker_gauges, add_cluster_gauges
        from broker.metrics_http import MetricsServer

        assert self._raft is not None
        add_cluster_gauges(self.metrics, metadata=metadata, raft=self._raft)
        if services is not None:
            assert self._inter_broker is not None
            add_broker_gauges(
                self.metrics,
                replica_manager=services.replica_manager,
                group_coordinator=services.group_coordinator,
                metadata=metadata,
                following=self._inter_broker,
            )
        host, _, port = self.config.barnabas_metrics_listener.rpartition(":")
        server = MetricsServer(self.metrics, self._clock)
        await server.start(host.strip("[]"), int(port))
        self._undo.append(server.close)

    # -- what collaborators are given -----------------------------------------------------------------------------

    def run_blocking(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Run `function` in the thread pool."""
        return self._loop.run_in_executor(self._executor, function, *arguments)

    def _handle_forwarded(self, frame: memoryview, facts: ConnectionFacts) -> Any:
        """A request to the controller that came in an Envelope."""
        assert self._controller_apis is not None
        return self._controller_apis.handle(frame, facts)

    def _directory_failed(self, path: Path, error: StorageError) -> None:
        """Its partitions go offline. Without the directory of the metadata log, or without any, a broker stops, as Kafka's does."""
        if self._replica_manager is not None:
            self._replica_manager.fail_log_dir(path, error)
        self._failed_directories.add(path)
        if path == Path(self.config.metadata_log_dir):
            self.request_stop(1, f"the log directory of the metadata log has failed: {path}")
            return
        if all(Path(directory) in self._failed_directories for directory in self.config.log_dirs):
            self.request_stop(1, "no log directory is left")
        elif self._lifecycle is not None and self._replica_manager is not None:
            lost = [
                (partition.topic, partition.partition)
                for partition in self._replica_manager.partitions()
                if partition.is_offline and partition.log.log_dir == str(path)
            ]
            self._lifecycle.lose_directory(self._directory_ids[str(path)], lost)


def _directory_id(log_manager: LogManager, log_dir: Path) -> bytes:
    """ZERO_UUID where an older version formatted it without one."""
    found = next((directory.meta for directory in log_manager.directories if directory.path == log_dir), None)
    return ZERO_UUID if found is None or found.directory_id is None else found.directory_id


async def open_logs(quorum: QuorumDriver, metadata: MetadataCache, log_manager: LogManager, *, now_ms: int) -> None:
    """Open the partitions' logs, once the metadata is what the quorum has: a replica that it does not know of is renamed away."""
    await quorum.caught_up()
    log_manager.open(config_of=metadata.log_config, topic_id_of=_topic_ids(metadata), now_ms=now_ms)


def _topic_ids(metadata: MetadataCache) -> Callable[[str], bytes | None]:
    def topic_id_of(name: str) -> bytes | None:
        topic = metadata.find_topic(name)
        return None if topic is None else topic.topic_id

    return topic_id_of
