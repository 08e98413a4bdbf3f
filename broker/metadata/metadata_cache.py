"""MetadataCache: the committed state of the cluster, for all parts of this broker to read.

Handlers, the ReplicaManager and the coordinators read it; only the MetadataPublisher writes it. Subscribers get each delta directly after
it was applied, on the loop, in the order of their subscriptions.

Source: KRaftMetadataCache, MetadataLoader, BrokerMetadataPublisher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import BrokerImage, MetadataDelta, PartitionChange, PartitionImage, TopicImage
from broker.metadata.topic_defaults import effective_overrides
from broker.security.credentials.credentials import Credentials
from config.server import ServerConfig
from config.topic import LogConfig, log_config

__all__ = ["BrokerImage", "MetadataCache", "MetadataDelta", "PartitionChange", "PartitionImage", "TopicImage"]

Subscriber = Callable[[MetadataDelta], None]


class MetadataCache:
    """See the module's docstring. The dicts are read-only for all others and stay the same objects."""

    def __init__(self, state: ClusterState, *, cluster_id: str, node_id: int, config: ServerConfig) -> None:
        self.state = state
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.brokers: dict[int, BrokerImage] = state.brokers
        self.topics: dict[str, TopicImage] = state.topics
        self.credentials = Credentials(
            state.scram, state.tokens, cluster_id=cluster_id, token_secret_key=config.delegation_token_secret_key
        )
        """What listeners of this node look up who logs in by SCRAM in."""
        self.end_offset = 0
        """Where the state ends in the metadata log; the publisher sets it."""
        self._config = config
        self._log_configs: dict[str, LogConfig] = {}
        self._shared_log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}  # by the topic's settings, which many topics share
        self._subscribers: list[Subscriber] = []

    @property
    def controller_id(self) -> int:
        """The broker that clients send admin requests to. Any live one will do (KIP-590); with none, -1."""
        if self.node_id in self.brokers and not self.brokers[self.node_id].is_fenced:
            return self.node_id
        return next((broker.node_id for broker in self.brokers.values() if not broker.is_fenced), -1)

    @property
    def broker_epoch(self) -> int:
        """This broker's own epoch, -1 before it is registered."""
        broker = self.brokers.get(self.node_id)
        return -1 if broker is None else broker.epoch

    def find_address(self, node_id: int, listener_name: str) -> tuple[str, int] | None:
        """Returns a registered broker's address on that listener."""
        broker = self.brokers.get(node_id)
        return None if broker is None else broker.endpoints.get(listener_name)

    def find_topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def find_topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        return self.state.topics_by_id.get(topic_id)

    def find_partition(self, name: str, partition: int) -> PartitionImage | None:
        topic = self.topics.get(name)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        return topic.partitions[partition]

    def log_config(self, name: str) -> LogConfig:
        """The topic's effective settings: its own over the brokers' dynamic defaults over server.properties. Any name is accepted."""
        found = self._log_configs.get(name)
        if found is None:
            own = tuple(sorted(self.state.topic_overrides(name).items()))
            found = self._shared_log_configs.get(own)
            if found is None:
                overrides = effective_overrides(self.state, self.node_id, name)
                found = self._shared_log_configs[own] = log_config(self._config.topic_defaults, overrides)
            if name in self.topics:
                self._log_configs[name] = found
        return found

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with every later delta. If there is state already, call it now with all of it."""
        self._subscribers.append(subscriber)
        everything = self.state.full_delta()
        if not everything.is_empty:
            subscriber(everything)

    def apply_committed(self, records: Sequence[Any]) -> None:
        """Replay one committed batch and tell the subscribers. Raises StorageError if the log contradicts itself."""
        self.state.replay_batch(records)
        self._publish()

    def replace_state(self, state: ClusterState) -> None:
        """Replace everything by `state`, made of a snapshot. The caller must not use `state` afterwards. Subscribers get the
        differences."""
        self.state.become(state)
        self._publish()

    def _publish(self) -> None:
        delta = self.state.take_delta()
        if delta.is_empty:
            return
        for topic in delta.deleted_topics:
            self._log_configs.pop(topic.name, None)
        for name in delta.changed_topic_configs:
            self._log_configs.pop(name, None)
        if delta.changed_topic_configs:
            self._shared_log_configs.clear()
        for subscriber in self._subscribers:
            subscriber(delta)
