"""InterBroker: a broker's replica fetchers, and the sender of its ISR proposals to the controller.

Both are imported and created when a partition first has another replica: a single node needs neither. Owner: client_server.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any

from broker.replication.fetcher.fetcher_control import FetcherControl, FetchersOnDemand, ReplicaLag

if TYPE_CHECKING:
    from broker.controller.channel import ControllerChannel
    from broker.metadata.metadata_cache import MetadataCache
    from broker.metadata.unreachable_brokers import UnreachableBrokers
    from broker.network.peer_login import PeerSecurity
    from broker.platform import Platform
    from broker.replication.fetcher.manager import ReplicaFetcherManager
    from broker.replication.fetcher.replica_fetcher import Endpoint, LeaderConnection
    from broker.replication.isr.isr_changes import IsrChanges
    from broker.replication.isr.isr_state import IsrProposal, OnIsrAnswer
    from broker.replication.replica_manager import ReplicaManager
    from config.server import ServerConfig
    from protocol.framing import BufferPool

FRAMING_BYTES_MAX = 16 * 1024 * 1024
"""What a Fetch response may have beside its records: 40 bytes a partition."""


class InterBroker:
    """See the module's docstring. `replica_manager` is set before the first partition is hosted."""

    def __init__(
        self,
        config: ServerConfig,
        metadata: MetadataCache,
        channel: ControllerChannel,
        platform: Platform,
        unreachable_brokers: UnreachableBrokers | None = None,
        security: PeerSecurity | None = None,
    ) -> None:
        self.fetchers = FetchersOnDemand(self._make_fetchers)
        self.replica_manager: ReplicaManager | None = None
        self._config = config
        self._metadata = metadata
        self._channel = channel
        self._platform = platform
        self._unreachable_brokers = unreachable_brokers
        self._security = security
        self._changes: IsrChanges | None = None
        self._manager: ReplicaFetcherManager | None = None
        self._pool: BufferPool | None = None
        self._tasks: dict[asyncio.Future[Any], None] = {}

    def alter_isr(self, proposal: IsrProposal, on_answer: OnIsrAnswer) -> None:
        """As IsrChanges.submit."""
        if self._changes is None:
            from broker.replication.isr.isr_changes import IsrChanges

            metadata = self._metadata
            self._changes = IsrChanges(
                self._channel, self._platform.clock, node_id=metadata.node_id, broker_epoch=lambda: metadata.broker_epoch
            )
        self._changes.submit(proposal, on_answer)

    def replica_lags(self) -> Iterable[ReplicaLag]:
        """The lag of each partition that follows another broker."""
        return () if self._manager is None else self._manager.lags()

    @property
    def failed_partitions_count(self) -> int:
        """The number of partitions that are not fetched until newer metadata comes."""
        return 0 if self._manager is None else self._manager.failed_count

    def take_over_settings(self) -> None:
        """As ReplicaFetcherManager.take_over_settings."""
        if self._manager is not None:
            self._manager.take_over_settings()

    async def stop(self) -> None:
        """Stop fetching and proposing."""
        if self._manager is not None:
            self._manager.close()
        if self._changes is not None:
            await self._changes.stop()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _make_fetchers(self) -> FetcherControl:
        from broker.replication.fetcher.manager import ReplicaFetcherManager

        assert self.replica_manager is not None
        self._manager = ReplicaFetcherManager(self._config, self._metadata, self.replica_manager, self._platform.clock, self._connect)
        return self._manager

    def _connect(self, endpoint: Endpoint, number: int) -> LeaderConnection:
        from broker.network.client import PeerConnection
        from protocol.framing import BufferPool

        config, platform = self._config, self._platform
        self._pool = self._pool or BufferPool()
        connection = PeerConnection(
            endpoint.host,
            endpoint.port,
            client_id=f"broker-{config.node_id}-fetcher-{number}",
            network=platform.network,
            loop=platform.loop,
            executor=platform.executor,
            clock=platform.clock,
            pool=self._pool,
            run_in_background=self._run_in_background,
            request_timeout_ms=config.replica_socket_timeout_ms,
            connect_timeouts_ms=(config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms),
            # One batch may be larger than a response should be, but not larger than a produce request.
            max_frame_size=max(config.replica_fetch_response_max_bytes, config.socket_request_max_bytes) + FRAMING_BYTES_MAX,
            security=self._security,
        )
        connection.on_lost = lambda: self._note_lost(endpoint)
        return connection

    def _note_lost(self, endpoint: Endpoint) -> None:
        """Called when the connection to the leader at `endpoint` has ended."""
        if self._unreachable_brokers is not None:
            listener_name = self._config.inter_broker_listener_name
            for broker in self._metadata.brokers.values():
                if broker.endpoints.get(listener_name) == endpoint:
                    self._unreachable_brokers.add(broker.node_id)

    def _run_in_background(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work, loop=self._platform.loop)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
