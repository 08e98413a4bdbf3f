"""The controller: its own state of the cluster, ahead of the committed one, and the pure decisions made on it.

One is made when this node comes to lead the quorum, of the committed state, and thrown away when it leads no more. The state is
replayed as soon as records are appended, so that the next operation sees them; the broker's MetadataCache follows when they are
committed.

Source: QuorumController.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from broker.controller.broker_control import BrokerControl
from broker.controller.config_control import ConfigControl
from broker.controller.heartbeats import BrokerHeartbeats
from broker.controller.topic_control import REPLICAS_UNLIMITED, TopicControl
from broker.metadata.cluster_state import ClusterState
from broker.metadata.config_entries import ConfigDescriber
from config.server import ServerConfig

if TYPE_CHECKING:
    from broker.controller.partition_control import PartitionControl


class Controller:
    """Owns the controller's state. `topics`, `configs`, `brokers` and `partitions` compute; `replay` alone changes."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        node_id: int,
        random_source: random.Random,
        replicas_max: int = REPLICAS_UNLIMITED,
        state: ClusterState | None = None,
        cluster_id: str = "",
        now_ms: int = 0,
    ) -> None:
        self.state = ClusterState() if state is None else state
        self.topics = TopicControl(self.state, config, ConfigDescriber(self.state, config, node_id), random_source, node_id, replicas_max)
        self.configs = ConfigControl(self.state, config, node_id)
        self.heartbeats = BrokerHeartbeats(config.broker_session_timeout_ms, now_ms, embedded_id=node_id)
        self.brokers = BrokerControl(self.state, cluster_id, self.heartbeats, now_ms, embedded_id=node_id)
        self._config = config
        self._node_id = node_id
        self._partitions: PartitionControl | None = None

    @property
    def partitions(self) -> PartitionControl:
        """Made when the first leader proposes an ISR: a single node never does."""
        if self._partitions is None:
            from broker.controller.partition_control import PartitionControl

            self._partitions = PartitionControl(self.state, self._config, self._node_id, self.brokers)
        return self._partitions

    def replay(self, records: Sequence[Any]) -> None:
        """Apply records that were just appended, or that are being loaded. Raises StorageError if they contradict the state."""
        self.state.replay_batch(records)
        self.state.take_delta()
