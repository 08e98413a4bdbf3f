"""CollectedChanges: what records have changed since the last MetadataDelta."""

from __future__ import annotations

from collections.abc import Mapping

from broker.metadata.image import AddedPartitions, MetadataDelta, PartitionChange, TopicImage
from broker.security.quotas.client_quotas import ClientQuota


class CollectedChanges:
    """The delta being collected; dicts serve as ordered sets."""

    __slots__ = ("added", "broker_configs", "brokers", "client_quotas", "created", "deleted", "partitions", "topic_configs")

    def __init__(self) -> None:
        self.created: dict[str, TopicImage] = {}
        self.deleted: list[TopicImage] = []
        self.partitions: dict[tuple[str, int], None] = {}
        self.added: list[tuple[TopicImage, int, int]] = []
        self.topic_configs: dict[str, None] = {}
        self.broker_configs: dict[str, None] = {}
        self.brokers: dict[int, None] = {}
        self.client_quotas: dict[ClientQuota, None] = {}

    def forget_topic(self, topic: TopicImage) -> None:
        """Remove `topic`. One that was created and deleted within this delta leaves no trace."""
        if self.created.pop(topic.name, None) is None:
            self.deleted.append(topic)
        self.topic_configs.pop(topic.name, None)
        self.added = [added for added in self.added if added[0] is not topic]
        if self.partitions:
            for index in range(len(topic.partitions)):
                self.partitions.pop((topic.name, index), None)

    def to_delta(self, topics: Mapping[str, TopicImage]) -> MetadataDelta:
        """The changes of a state that has these topics, by name."""
        # A broker's default may be the effective value of any topic.
        changed_topic_configs = topics if self.broker_configs else self.topic_configs
        return MetadataDelta(
            created_topics=tuple(self.created.values()),
            deleted_topics=tuple(self.deleted),
            changed_partitions=tuple(
                PartitionChange(topics[name], index, topics[name].partitions[index]) for name, index in self.partitions
            ),
            added_partitions=tuple(AddedPartitions(topic, start, stop) for topic, start, stop in self.added),
            changed_topic_configs=tuple(changed_topic_configs),
            changed_broker_configs=tuple(self.broker_configs),
            changed_brokers=tuple(self.brokers),
            changed_client_quotas=tuple(self.client_quotas),
        )
