"""The cluster as values: brokers, topics, partitions, and the delta of a batch of records.

Only `ClusterState` creates and changes these; all others read them. A `BrokerImage` or `PartitionImage` is replaced by a new object. A
`TopicImage` lives as long as its topic, and its list of partitions changes in place.

Source: org.apache.kafka.image and org.apache.kafka.metadata (BrokerRegistration, PartitionRegistration).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from broker.security.quotas.client_quotas import ClientQuota

NO_LEADER = -1

# A partition's leader_recovery_state: after an unclean election the leader first recovers its followers (LeaderRecoveryState).
RECOVERED = 0
RECOVERING = 1

# The values of a PartitionChangeRecord's fields that do not change.
NO_LEADER_CHANGE = -2
NO_RECOVERY_STATE_CHANGE = -1

# Placeholders for the id of a replica's log directory (org.apache.kafka.common.DirectoryId). The first, for replicas from before KIP-858,
# and the second count as online.
MIGRATING_DIRECTORY = (0).to_bytes(16, "big")
UNASSIGNED_DIRECTORY = (1).to_bytes(16, "big")
LOST_DIRECTORY = (2).to_bytes(16, "big")

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"

INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
"""Topics that clients may not write to, and that Metadata marks `is_internal`."""

CLUSTER_METADATA_TOPIC = "__cluster_metadata"


class BrokerImage(NamedTuple):
    """A registered broker. `epoch` is the offset of its registration record; a fenced broker leads nothing."""

    node_id: int
    endpoints: dict[str, tuple[str, int]]
    rack: str | None
    epoch: int
    is_fenced: bool
    is_in_controlled_shutdown: bool = False
    incarnation_id: bytes = bytes(16)
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    """The directories that get no new replicas; None if that was never reported."""
    registration: Any = None
    """The RegisterBrokerRecord it began with, for what is only stored: security protocols and feature ranges."""

    @property
    def is_active(self) -> bool:
        """Whether it may be a leader and a member of an ISR."""
        return not self.is_fenced and not self.is_in_controlled_shutdown

    @property
    def may_get_replicas(self) -> bool:
        """Whether at least one of its log directories is not known to be cordoned."""
        return not self.log_dirs or self.cordoned_log_dirs is None or not set(self.log_dirs) <= set(self.cordoned_log_dirs)


class ProducerIdBlock(NamedTuple):
    """Producer ids that one broker may hand out: `ids_count` of them from `first` on."""

    first: int
    ids_count: int


@dataclass(frozen=True, slots=True)  # not a NamedTuple: its fields are read for each partition of a Metadata answer
class PartitionImage:
    """One partition's registration. `leader_epoch` grows when the leader changes, `partition_epoch` with every change."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_recovery_state: int = 0
    directories: tuple[bytes, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


class TopicImage:
    """A topic; `partitions[i]` is partition i."""

    __slots__ = ("is_internal", "name", "partitions", "topic_id")  # requests read them, and a NamedTuple's fields are slower

    def __init__(self, name: str, topic_id: bytes, partitions: list[PartitionImage], is_internal: bool = False) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.is_internal = is_internal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicImage) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


class PartitionChange(NamedTuple):
    """A new or changed partition: its topic, its index there, and its image."""

    topic: TopicImage
    partition: int
    image: PartitionImage


class AddedPartitions(NamedTuple):
    """Very many new partitions of one topic: those from `start`, inclusive, to `stop`, exclusive."""

    topic: TopicImage
    start: int
    stop: int

    def changes(self) -> Iterator[PartitionChange]:
        """Yields them one by one, a microsecond each."""
        for index in range(self.start, self.stop):
            yield PartitionChange(self.topic, index, self.topic.partitions[index])


class MetadataDelta(NamedTuple):
    """The changes, in the order of the records. Apply the deletions first: a topic may be deleted and created again under its name.

    `changed_partitions` has every partition that is new or changed, including those of `created_topics`, except those in
    `added_partitions`, which a subscriber applies in slices. A ReplicaManager needs only these two, `deleted_topics` and
    `changed_topic_configs`. The latter names every topic whose effective config may differ now, also because of a broker default.
    """

    created_topics: tuple[TopicImage, ...] = ()
    deleted_topics: tuple[TopicImage, ...] = ()
    changed_partitions: tuple[PartitionChange, ...] = ()
    added_partitions: tuple[AddedPartitions, ...] = ()
    changed_topic_configs: tuple[str, ...] = ()
    changed_broker_configs: tuple[str, ...] = ()
    changed_brokers: tuple[int, ...] = ()
    changed_client_quotas: tuple[ClientQuota, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (
            self.created_topics
            or self.deleted_topics
            or self.changed_partitions
            or self.added_partitions
            or self.changed_topic_configs
            or self.changed_broker_configs
            or self.changed_brokers
            or self.changed_client_quotas
        )
