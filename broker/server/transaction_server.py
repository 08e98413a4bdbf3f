"""TransactionServer: builds, starts and stops the parts of a broker that serve transactions.

- the coordinator of the transactional ids in those partitions of `__transaction_state` that this broker leads;
- the channels by which it has the ends of transactions written to their partitions;
- what asks the coordinators before the first batch of a transaction is appended to a partition that this broker leads;
- what looks for transactions that hang in such partitions.

Subscribe `on_metadata_delta` after the ReplicaManager and the group coordinator. Owner: client_server.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.coordination.coordinator_log import ReplicatedCoordinatorLog
from broker.metadata.features import TRANSACTION_VERSION_FEATURE
from broker.metadata.image import TRANSACTION_STATE_TOPIC
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.coordinator_inquiries import CoordinatorInquiries
from broker.transactions.hanging_transactions import HangingTransactions
from broker.transactions.local_markers import LocalMarkers
from broker.transactions.marker_channels import MarkerChannels
from broker.transactions.partition_additions import AdditionSettings, PartitionAdditions
from broker.transactions.settings import TransactionSettings

if TYPE_CHECKING:
    from broker.cluster.links import ClusterLinks
    from broker.cluster.peer_connections import PeerConnections
    from broker.cluster.producer_ids import ProducerIdManager
    from broker.groups.coordinator import GroupCoordinator
    from broker.loop.clock import Clock
    from broker.metadata.image import MetadataDelta
    from broker.metadata.metadata_cache import MetadataCache
    from broker.observability.metrics import Metrics
    from broker.replication.replica_manager import ReplicaManager
    from broker.server.node import Node


class TransactionServer:
    """See the module's docstring. `links` is None for a node that has no other nodes. `is_verification_enabled` gives the present value of
    transaction.partition.verification.enable."""

    def __init__(
        self,
        node: Node,
        metadata: MetadataCache,
        links: ClusterLinks | None,
        *,
        replica_manager: ReplicaManager,
        group_coordinator: GroupCoordinator,
        producer_ids: ProducerIdManager,
        is_verification_enabled: Callable[[], bool],
    ) -> None:
        config = node.config
        local_markers = LocalMarkers(replica_manager.produce_path, group_coordinator, timeout_ms=config.request_timeout_ms)
        self.marker_channels = MarkerChannels(
            metadata,
            local_markers,
            partial(_connections, links, "transaction-markers"),
            node.clock,
            partition_for=lambda transactional_id: self.coordinator.partition_for(transactional_id),
            listener_name=config.inter_broker_listener_name,
            request_timeout_ms=config.request_timeout_ms,
        )
        coordinator_log = ReplicatedCoordinatorLog(
            TRANSACTION_STATE_TOPIC,
            replica_manager,
            metadata,
            default_partition_count=config.transaction_state_log_num_partitions,
            run_blocking=node.run_blocking,
        )
        self.coordinator = TransactionCoordinator(
            TransactionSettings.from_server(config),
            coordinator_log,
            node.clock,
            node_id=node.node_id,
            next_producer_id=producer_ids.take,
            marker_sender=self.marker_channels,
            transaction_version=lambda: metadata.state.features.get(TRANSACTION_VERSION_FEATURE, 0),
        )
        self.additions = PartitionAdditions(
            self.coordinator,
            metadata,
            partial(_connections, links, "transaction-additions"),
            node.clock,
            AdditionSettings.from_server(config),
            listener_name=config.inter_broker_listener_name,
            is_verification_enabled=is_verification_enabled,
        )
        inquiries = CoordinatorInquiries(
            self.coordinator,
            metadata,
            partial(_connections, links, "transaction-inquiries"),
            node.clock,
            listener_name=config.inter_broker_listener_name,
        )
        self._hanging = HangingTransactions(
            replica_manager.each_partition,
            replica_manager.find_partition,
            inquiries,
            node.clock,
            max_timeout_ms=config.transaction_max_timeout_ms,
            bootstrap_server=partial(_own_address, metadata, config.inter_broker_listener_name),
        )

    def start(self) -> None:
        """Serve from now on."""
        self.coordinator.start()
        self._hanging.start()

    def add_gauges(self, metrics: Metrics, clock: Clock) -> None:
        """Add the gauges of transactions."""
        from broker.server.transaction_gauges import add_partition_addition_gauges, add_transaction_gauges

        add_partition_addition_gauges(metrics, self.additions)
        add_transaction_gauges(metrics, self.coordinator, self.marker_channels, clock)

    async def stop(self) -> None:
        """Answer what waits, and ask and write nothing more."""
        self.coordinator.stop()
        await self._hanging.stop()
        await self.marker_channels.close()
        await self.additions.close()

    def on_metadata_delta(self, delta: MetadataDelta) -> None:
        """Follow leaderships, and brokers that go and come. The markers that a new coordinator finds have their new leaders already."""
        self.marker_channels.on_metadata_delta(delta)
        self.additions.on_metadata_delta(delta)
        self.coordinator.on_metadata_delta(delta)


def _connections(links: ClusterLinks | None, purpose: str) -> PeerConnections:
    assert links is not None, "a node without links is the only broker"
    return links.broker_connections(purpose)


def _own_address(metadata: MetadataCache, listener_name: str) -> str:
    address = metadata.find_address(metadata.node_id, listener_name)
    return "HOST:PORT" if address is None else f"{address[0]}:{address[1]}"
