"""The topics that groups read, as the committed metadata has them: ids, partition counts, and a hash that tells of any change (KIP-1101).

The hash is Kafka's, byte for byte, so that a coordinator of either kind that takes over sees no change where there is none. Those of
large topics, and of very many, are computed by a job in pieces: 10,000 partitions on three racks each take 30 ms.

Source: Utils.computeTopicHash and computeGroupHash of the group coordinator.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Generator, Iterable
from typing import TYPE_CHECKING

from broker.loop.turns import at_once
from protocol.xxh3 import xxh3_64, xxh3_64_in_pieces

if TYPE_CHECKING:
    from broker.groups.consumer.jobs import GroupJobs
    from broker.metadata.image import MetadataDelta, TopicImage
    from broker.metadata.metadata_cache import MetadataCache

BYTES_AT_ONCE = 64 * 1024
"""Descriptions of topics that are hashed with the request that needs the hash, in 3 ms at most: where it has to wait for a job, a group
may get an epoch more. A description is about DESCRIPTION_BYTES, and PARTITION_BYTES for each partition, and REPLICA_BYTES for each
replica where brokers have racks."""

DESCRIPTION_BYTES, PARTITION_BYTES, REPLICA_BYTES = 100, 4, 30

PARTITIONS_PER_PIECE = 500
"""Partitions that are described between two yields, at 0.3 to 0.6 µs each."""

_MAGIC = b"\0"
_INT = struct.Struct("<i")


class GroupTopics:
    """The view of all groups of this broker. Follows the metadata by `on_metadata_delta`."""

    def __init__(self, metadata: MetadataCache, jobs: GroupJobs) -> None:
        self._metadata = metadata
        self._jobs = jobs
        self._hashes: dict[str, int] = {}
        self._wanted: dict[str, None] = {}  # the topics whose hashes the job has yet to compute
        self._in_work: str | None = None  # the one that it computes; None if that one has changed since
        self.last_creation_version = self.version
        """The version that brought the last new topics, or was the first that groups saw here."""

    def ids_of(self, names: Iterable[str]) -> tuple[bytes, ...]:
        """The ids of those that exist, in ascending order."""
        topics = self._metadata.topics
        return tuple(sorted(topics[name].topic_id for name in names if name in topics))

    def find_id(self, name: str) -> bytes | None:
        topic = self._metadata.find_topic(name)
        return None if topic is None else topic.topic_id

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._metadata.find_topic_by_id(topic_id)
        return None if topic is None else topic.name

    def partition_count(self, topic_id: bytes) -> int:
        """0 for a topic that does not exist."""
        topic = self._metadata.find_topic_by_id(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def partition_count_of(self, name: str) -> int:
        """The same by the topic's name."""
        topic = self._metadata.topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def names(self) -> Collection[str]:
        """All topics."""
        return self._metadata.topics.keys()

    @property
    def version(self) -> int:
        """Of the metadata: the offset of the last record of the committed state."""
        return self._metadata.end_offset - 1

    # Hashes.

    def find_hash(self, names: Iterable[str]) -> int | None:
        """Of these topics, those that exist: a signed number, as it is stored. 0 of none. None if it takes long, and is known later."""
        topics = self._metadata.topics
        names = sorted(name for name in names if name in topics)
        missing = [name for name in names if name not in self._hashes]
        if missing and not self._hash_at_once(missing):
            return None
        hashes = [self._hashes[name] for name in names]
        return _signed(xxh3_64(struct.pack(f"<{len(hashes)}Q", *hashes))) if hashes else 0

    def _hash_at_once(self, names: list[str]) -> bool:
        """Whether it was little enough to do so. Else a job hashes them."""
        topics, racks = self._metadata.topics, self._racks()
        left = BYTES_AT_ONCE
        for name in names:
            left -= _estimated_size(topics[name], racks)
            if left < 0:
                self._wanted.update(dict.fromkeys(names))
                if not self._jobs.is_running(key := (self, "hashes", "")):
                    self._jobs.start(key, self._hash_wanted(), _done)
                return False
        for name in names:
            self._hashes[name] = xxh3_64(at_once(_described(topics[name], racks)))
        return True

    def _hash_wanted(self) -> Generator[None, None, None]:
        while self._wanted:
            name, _ = self._wanted.popitem()
            topic = self._metadata.topics.get(name)
            if topic is None or name in self._hashes:
                continue
            self._in_work = name
            description = yield from _described(topic, self._racks())
            found = yield from xxh3_64_in_pieces(description)
            if self._in_work == name:
                self._hashes[name] = found
            yield
        self._in_work = None

    def _racks(self) -> dict[int, str]:
        return {node_id: broker.rack for node_id, broker in self._metadata.brokers.items() if broker.rack is not None}

    def on_metadata_delta(self, delta: MetadataDelta) -> set[str]:
        """Forget what may be wrong now; the names of the topics that are not what they were."""
        if delta.created_topics:
            self.last_creation_version = self.version
        changed = {topic.name for topic in (*delta.created_topics, *delta.deleted_topics)}
        changed.update(change.topic.name for change in delta.changed_partitions)
        changed.update(added.topic.name for added in delta.added_partitions)
        for name in changed:
            self._hashes.pop(name, None)
        if self._in_work in changed or delta.changed_brokers:
            self._in_work = None
        if delta.changed_brokers:  # their racks may have changed
            self._hashes.clear()
        return changed


def _estimated_size(topic: TopicImage, racks: dict[int, str]) -> int:
    """Of the topic's description."""
    partition_count = len(topic.partitions)
    replica_count = len(topic.partitions[0].replicas) if racks and partition_count else 0
    return DESCRIPTION_BYTES + partition_count * (PARTITION_BYTES + REPLICA_BYTES * replica_count)


def _described(topic: TopicImage, racks: dict[int, str]) -> Generator[None, None, bytes]:
    """What is hashed."""
    partitions = topic.partitions
    parts = [_MAGIC, topic.topic_id[7::-1], topic.topic_id[:7:-1], _string(topic.name), _INT.pack(len(partitions))]
    if not racks:
        parts.append(struct.pack(f"<{len(partitions)}i", *range(len(partitions))))
        return b"".join(parts)
    texts = {rack: _INT.pack(len(rack.encode("utf-16-le")) // 2) + _string(rack) for rack in racks.values()}
    by_replicas: dict[tuple[int, ...], bytes] = {}  # few partitions of a topic have replicas that no other has
    for index, partition in enumerate(partitions):
        of_replicas = by_replicas.get(partition.replicas)
        if of_replicas is None:
            found = sorted(racks[replica] for replica in partition.replicas if replica in racks)
            of_replicas = by_replicas[partition.replicas] = b"".join([texts[rack] for rack in found])
        parts += (_INT.pack(index), of_replicas)
        if index % PARTITIONS_PER_PIECE == PARTITIONS_PER_PIECE - 1:
            yield
    return b"".join(parts)


def _string(text: str) -> bytes:
    """As hash4j's putString: the characters of Java, then their count."""
    characters = text.encode("utf-16-le")
    return characters + _INT.pack(len(characters) // 2)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _done(_: None) -> None:
    """The job keeps what it found itself."""
