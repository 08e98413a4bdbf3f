"""What the cluster looks like, as values: brokers, topics, partitions, and the difference that a batch of records made.

`ClusterState` alone makes and changes these; everyone else reads them. `BrokerImage` and `PartitionImage` are replaced whole;
a `TopicImage` lives as long as its topic, and its list of partitions changes in place.

Source: org.apache.kafka.image and org.apache.kafka.metadata (BrokerRegistration, PartitionRegistration).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

NO_LEADER = -1

# A partition's leader_recovery_state: after an unclean election its leader first brings the followers in line (LeaderRecoveryState).
RECOVERED = 0
RECOVERING = 1

# What a PartitionChangeRecord says where these stay as they are.
NO_LEADER_CHANGE = -2
NO_RECOVERY_STATE_CHANGE = -1

# What stands for the id of a replica's log directory where there is none (org.apache.kafka.common.DirectoryId). The first, of replicas
# from before KIP-858, and the second count as online.
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
    """Those that get no new replicas; None where nobody said it."""
    registration: Any = None
    """The RegisterBrokerRecord it began with, for what is only stored: security protocols and feature ranges."""

    @property
    def is_active(self) -> bool:
        """May be a leader and a member of an ISR."""
        return not self.is_fenced and not self.is_in_controlled_shutdown

    @property
    def may_get_replicas(self) -> bool:
        """Whether a log directory of it is not cordoned, as far as is known."""
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

    __slots__ = ("is_internal", "name", "partitions", "topic_id")  # requests ask for them, which a tuple's fields slow

    def __init__(self, name: str, topic_id: bytes, partitions: list[PartitionImage], is_internal: bool = False) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions
        self.is_internal = is_internal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicImage) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


class PartitionChange(NamedTuple):
    """A partition that is new or changed: its topic, its index there, and what it is now."""

    topic: TopicImage
    partition: int
    image: PartitionImage


class AddedPartitions(NamedTuple):
    """Very many new partitions of one topic: those from `start`, inclusive, to `stop`, exclusive."""

    topic: TopicImage
    start: int
    stop: int

    def changes(self) -> Iterator[PartitionChange]:
        """Them one by one, a microsecond each."""
        for index in range(self.start, self.stop):
            yield PartitionChange(self.topic, index, self.topic.partitions[index])


class MetadataDelta(NamedTuple):
    """What changed, in the order of the records. Apply the deletions first: a topic may be deleted and made anew under its name.

    `changed_partitions` has every partition that is new or changed, those of `created_topics` included, but for those in
    `added_partitions`: a subscriber takes these over in turns. A ReplicaManager needs only these two, `deleted_topics` and
    `changed_topic_configs`. The latter names every topic whose effective
    configuration may differ now, also when a broker default did it.
    """

    created_topics: tuple[TopicImage, ...] = ()
    deleted_topics: tuple[TopicImage, ...] = ()
    changed_partitions: tuple[PartitionChange, ...] = ()
    added_partitions: tuple[AddedPartitions, ...] = ()
    changed_topic_configs: tuple[str, ...] = ()
    changed_broker_configs: tuple[str, ...] = ()
    changed_brokers: tuple[int, ...] = ()

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
        )
