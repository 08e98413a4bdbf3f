"""HostedPartitions: the partitions of this broker by name. It also creates each one over its log.

Owns the Partition objects; the LogManager owns the logs. The metadata decides which partitions are hosted here: only the
BrokerMetadataPublisher adds and removes them. Source: kafka.server.ReplicaManager's allPartitions, getPartitionOrError,
getOrCreatePartition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from broker.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from broker.replication.partition_role import OFFLINE
from protocol.errors import ErrorCode, KafkaError
from storage.errors import StorageError
from storage.log_manager import is_log_of

if TYPE_CHECKING:
    from broker.loop.clock import Clock
    from broker.metadata.image import PartitionChange, PartitionImage
    from broker.metadata.metadata_cache import MetadataCache
    from broker.observability.metrics import Metrics
    from broker.replication.partition import Partition, PartitionEnvironment
    from storage.log_manager import LogManager

log = logging.getLogger("barnabas.replication")


class HostedPartitions:
    """See the module's docstring.

    Hot paths read `topics` directly, to save a call; only this class changes it.

    `make_on_demand(topic, partition)` creates a partition that the metadata knows and that waits to be created, or returns None.
    `on_disk_failure(directory, error)` is called when the disk of an open log fails. `on_flush_due(partition)` is called when a leader
    with flush.messages=1 begins with records that are not durable: without a flush they would not be committed before the next append.
    `on_misplaced(topic_id, index, directory_id)` is called for a replica whose log is in another log directory than the metadata says;
    `directory_id` is that of the log."""

    def __init__(
        self,
        *,
        node_id: int,
        clock: Clock,
        metrics: Metrics,
        metadata: MetadataCache,
        log_manager: LogManager,
        environment: PartitionEnvironment,
        make_on_demand: Callable[[str, int], Partition | None],
        on_disk_failure: Callable[[Path, StorageError], None],
        on_flush_due: Callable[[Partition], None],
        on_misplaced: Callable[[bytes, int, bytes], None] | None = None,
    ) -> None:
        self.node_id = node_id
        self.topics: dict[str, dict[int, Partition]] = {}
        self.is_loading = True  # until the partitions of before this start are hosted
        self._clock = clock
        self._metrics = metrics
        self._metadata = metadata
        self._log_manager = log_manager
        self._environment = environment
        self._make_on_demand = make_on_demand
        self._on_disk_failure = on_disk_failure
        self._on_flush_due = on_flush_due
        self._on_misplaced = on_misplaced
        self._unopened: set[tuple[str, int]] = set()  # replicas of this broker whose log could not be opened or made

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.topics.values():
            yield from partitions.values()

    def each(self) -> Iterator[Partition]:
        """As `__iter__`, but partitions may be added and removed while it is iterated, as a job in slices does."""
        for name in tuple(self.topics):
            yield from tuple(self.topics.get(name, {}).values())

    def find(self, topic: str, partition: int) -> Partition | None:
        """The hosted partition, also while its log directory is offline; None while it waits to be created."""
        partitions = self.topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def is_unopened(self, topic: str, partition: int) -> bool:
        """Whether its log could not be opened or made: it is offline until the next start, as in Kafka."""
        return (topic, partition) in self._unopened

    def get(self, topic: str, partition: int) -> Partition:
        """The hosted partition, online. Raises KafkaError: KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER when another broker has
        it, so that clients refresh their metadata; UNKNOWN_TOPIC_OR_PARTITION."""
        partitions = self.topics.get(topic)
        found = (None if partitions is None else partitions.get(partition)) or self._make_on_demand(topic, partition)
        if found is not None and found.role is not OFFLINE:
            return found
        if found is not None or (topic, partition) in self._unopened:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        image = self._metadata.find_topic(topic)
        if image is not None and 0 <= partition < len(image.partitions):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def host(self, change: PartitionChange) -> Partition | None:
        """Make the partition leader or follower as `change` says; a new one is opened first. Returns None if it is offline, also if its
        disk fails now."""
        topic, index, image = change.topic, change.partition, change.image
        if (topic.name, index) in self._unopened:
            return None
        try:
            known = find_directory(image, self.node_id)
            partition = self.find(topic.name, index) or self._open(topic.name, index, topic.topic_id, known)
            if partition.is_offline:
                return None
            if self._on_misplaced is not None and known is not None:
                directory_id = self._log_manager.find_directory_id(partition.log.log_dir)
                if directory_id is not None and directory_id != known and not self._is_on_its_way(partition, known):
                    self._on_misplaced(topic.topic_id, index, directory_id)
            if image.leader == self.node_id:
                partition.make_leader(image, now_ms=self._clock.monotonic_ms())
                if partition.waits_for_flush and partition.is_flush_due:
                    self._on_flush_due(partition)
            else:
                partition.make_follower(image)
            return partition
        except StorageError as error:
            log.error("cannot open partition=%s-%d error=%s", topic.name, index, error)
            opened = self.find(topic.name, index)
            if opened is None:
                self._unopened.add((topic.name, index))
                if self._on_misplaced is not None and find_directory(image, self.node_id) == UNASSIGNED_DIRECTORY:
                    # No failed directory tells the controller that this replica is offline. Other replicas have to lead.
                    self._on_misplaced(topic.topic_id, index, LOST_DIRECTORY)
            else:
                self._on_disk_failure(opened.log.directory.parent, error)
                opened.mark_offline()
            return None

    def _is_on_its_way(self, partition: Partition, directory_id: bytes) -> bool:
        """Whether the partition is moving to that directory: the metadata is updated before the copy takes over (KIP-858)."""
        future = self._log_manager.futures.find(partition.topic, partition.partition)
        return future is not None and self._log_manager.find_directory_id(future.log_dir) == directory_id

    def take(self, partition: Partition) -> None:
        """Remove the partition."""
        partitions = self.topics[partition.topic]
        del partitions[partition.partition]
        if not partitions:
            del self.topics[partition.topic]

    def take_topics(self, names: set[str]) -> list[Partition]:
        """Remove the topics; returns their partitions."""
        self._unopened = {key for key in self._unopened if key[0] not in names}
        return [partition for name in names for partition in self.topics.pop(name, {}).values()]

    def _open(self, topic: str, index: int, topic_id: bytes, directory_id: bytes | None) -> Partition:
        """Returns a Partition over its log. A log is created if this broker has none of that topic id, in that directory if it is
        online. The log of an earlier topic of the same name is set aside; Kafka refuses an inconsistent topic id."""
        logs = self._log_manager
        partition_log = logs.find_log(topic, index)
        if partition_log is not None and not is_log_of(partition_log, topic_id):
            logs.set_aside(topic, index)
            partition_log = None
        if partition_log is None:
            if self.is_loading and len(logs.online_directories) < len(logs.directories):
                # A new log in another directory would begin at offset 0 and hide every acknowledged record.
                raise StorageError("its log may lie in a directory that is offline")
            partition_log = logs.create_log(topic, index, topic_id, self._metadata.log_config(topic), self._clock.now_ms(), directory_id)
        from broker.replication.partition import Partition  # late: a start without partitions does not need it

        partition = Partition(
            topic,
            index,
            topic_id,
            partition_log,
            node_id=self.node_id,
            environment=self._environment,
            metrics=self._metrics.topic(topic),
        )
        self.topics.setdefault(topic, {})[index] = partition
        return partition


def find_directory(image: PartitionImage, node_id: int) -> bytes | None:
    """Returns the id of the log directory that holds the node's replica according to the metadata; None where it does not say (before
    KIP-858)."""
    if len(image.directories) != len(image.replicas) or node_id not in image.replicas:
        return None
    return image.directories[image.replicas.index(node_id)]
