"""The controller: the cluster state including uncommitted records, and the pure decisions made on it.

It is created from the committed state when this node becomes leader of the quorum, and discarded when the leadership ends. Records are
replayed into the state as soon as they are appended, so that the next operation sees them. The broker's MetadataCache gets them when they
are committed.

Source: QuorumController.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from broker.controller.broker_control import BrokerControl
from broker.controller.broker_partitions import BrokerPartitions
from broker.controller.elections import Elections
from broker.controller.heartbeats import BrokerHeartbeats
from broker.metadata.cluster_state import ClusterState
from broker.metadata.config_entries import ConfigDescriber
from config.server import ServerConfig

if TYPE_CHECKING:
    from broker.controller.acl_control import AclControl
    from broker.controller.client_quota_control import ClientQuotaControl
    from broker.controller.config_control import ConfigControl
    from broker.controller.feature_control import FeatureControl
    from broker.controller.partition_control import PartitionControl
    from broker.controller.reassignments import Reassignments
    from broker.controller.scram_control import ScramControl
    from broker.controller.token_control import TokenControl
    from broker.controller.topic_control import TopicControl

REPLICAS_UNLIMITED = 2**31 - 1


class Controller:
    """Owns the controller's state. `topics`, `configs`, `brokers`, `partitions` and `elections` only compute; only `replay` changes the
    state.

    Parts that a start does not need are created, and their modules imported, at their first use."""

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
        self.heartbeats = BrokerHeartbeats(config.broker_session_timeout_ms, now_ms, embedded_id=node_id)
        self.elections = Elections(self.state, config, node_id, BrokerPartitions(self.state))
        self.brokers = BrokerControl(self.state, cluster_id, self.elections, self.heartbeats, now_ms, embedded_id=node_id)
        self.config = config
        self._node_id = node_id
        self._random = random_source
        self._replicas_max = replicas_max
        self._topics: TopicControl | None = None
        self._configs: ConfigControl | None = None
        self._partitions: PartitionControl | None = None
        self._features: FeatureControl | None = None
        self._tokens: TokenControl | None = None

    @property
    def topics(self) -> TopicControl:
        if self._topics is None:
            from broker.controller.topic_control import TopicControl

            describer = ConfigDescriber(self.state, self.config, self._node_id)
            self._topics = TopicControl(
                self.state, self.config, describer, self.elections, self._random, node_id=self._node_id, replicas_max=self._replicas_max
            )
        return self._topics

    @property
    def configs(self) -> ConfigControl:
        if self._configs is None:
            from broker.controller.config_control import ConfigControl

            self._configs = ConfigControl(self.state, self.config, self._node_id)
        return self._configs

    @property
    def partitions(self) -> PartitionControl:
        """Created when the first leader proposes an ISR; on a single node none does."""
        if self._partitions is None:
            from broker.controller.partition_control import PartitionControl

            self._partitions = PartitionControl(self.state, self.elections, self.brokers)
        return self._partitions

    @property
    def features(self) -> FeatureControl:
        if self._features is None:
            from broker.controller.feature_control import FeatureControl

            self._features = FeatureControl(self.state, self._node_id, self.config.min_insync_replicas)
        return self._features

    @property
    def acls(self) -> AclControl:
        """Stateless, so it is created for each request."""
        from broker.controller.acl_control import AclControl

        return AclControl(self.state, self._random)

    @property
    def client_quotas(self) -> ClientQuotaControl:
        """Stateless, so it is created for each request."""
        from broker.controller.client_quota_control import ClientQuotaControl

        return ClientQuotaControl(self.state.client_quotas)

    @property
    def scram(self) -> ScramControl:
        """Stateless, so it is created for each request."""
        from broker.controller.scram_control import ScramControl

        return ScramControl(self.state)

    @property
    def tokens(self) -> TokenControl:
        if self._tokens is None:
            from broker.controller.token_control import TokenControl

            self._tokens = TokenControl(self.state, self.config, self._random)
        return self._tokens

    @property
    def reassignments(self) -> Reassignments:
        """Stateless, so it is created for each request."""
        from broker.controller.reassignments import Reassignments

        return Reassignments(self.state, self.elections)

    def replay(self, records: Sequence[Any]) -> None:
        """Apply records that were just appended, or that are being loaded. Raises StorageError if they contradict the state."""
        self.state.replay_batch(records)
        self.elections.partitions.note(self.state.take_delta())
