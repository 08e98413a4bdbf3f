"""What partitions use of the broker and the cluster: facts about other brokers, the channel to the controller, and the waiting requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.replication.isr.follower import NO_BROKER_EPOCH
from broker.replication.isr.isr_state import IsrCounts

if TYPE_CHECKING:
    from broker.metadata.metadata_cache import MetadataCache
    from broker.observability.limited_log import LimitedLog
    from broker.replication.fetcher.fetcher_control import FetcherControl
    from broker.replication.isr.isr_state import IsrProposal, OnIsrAnswer
    from broker.replication.partition import Partition
    from broker.replication.waiting_requests import WaitingRequests


AlterIsr = Callable[["IsrProposal", "OnIsrAnswer"], None]


class ClusterEnvironment:
    """The PartitionEnvironment of all partitions of this broker.

    `alter_isr` sends a proposal to the controller. With one node there are no followers, and it is never called."""

    def __init__(
        self,
        metadata: MetadataCache,
        waiting: WaitingRequests,
        *,
        replica_lag_time_max_ms: int,
        alter_isr: AlterIsr | None,
        fetchers: FetcherControl,
        events: LimitedLog,
    ) -> None:
        self.fetchers = fetchers
        self.events = events
        self.replica_lag_time_max_ms = replica_lag_time_max_ms
        self.isr_counts = IsrCounts()
        self._metadata = metadata
        self._waiting = waiting
        self._alter_isr = alter_isr

    @property
    def broker_epoch(self) -> int:
        return self._metadata.broker_epoch

    def alter_isr(self, proposal: IsrProposal, on_answer: OnIsrAnswer) -> None:
        assert self._alter_isr is not None, "a broker with followers is given a way to the controller"
        self._alter_isr(proposal, on_answer)

    def is_broker_epoch_stale(self, node_id: int, broker_epoch: int) -> bool:
        broker = self._metadata.brokers.get(node_id)
        return broker is not None and broker.epoch > broker_epoch

    def is_isr_eligible(self, node_id: int, broker_epoch: int | None) -> bool:
        broker = self._metadata.brokers.get(node_id)
        return broker is not None and broker.is_active and broker_epoch in (NO_BROKER_EPOCH, broker.epoch)

    def is_alive(self, node_id: int) -> bool:
        broker = self._metadata.brokers.get(node_id)
        return broker is not None and not broker.is_fenced

    def on_progress(self, partition: Partition) -> None:
        self._waiting.wake(partition)
