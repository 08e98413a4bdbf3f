"""The topics that groups read, as the committed metadata has them: ids, partition counts, and a hash that tells of any change (KIP-1101).

The hash is Kafka's, byte for byte, so that a coordinator of either kind that takes over sees no change where there is none.

Source: Utils.computeTopicHash and computeGroupHash of the group coordinator.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from protocol.xxh3 import xxh3_64

if TYPE_CHECKING:
    from broker.metadata.image import MetadataDelta, TopicImage
    from broker.metadata.metadata_cache import MetadataCache

_MAGIC = b"\0"
_INT = struct.Struct("<i")


class GroupTopics:
    """The view of all groups of this broker. Follows the metadata by `on_metadata_delta`."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self._hashes: dict[str, int] = {}
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

    def hash_of(self, names: Iterable[str]) -> int:
        """Of these topics, those that exist: a signed number, as it is stored. 0 of none."""
        topics = self._metadata.topics
        hashes = [self._topic_hash(topics[name]) for name in sorted(names) if name in topics]
        return _signed(xxh3_64(struct.pack(f"<{len(hashes)}Q", *hashes))) if hashes else 0

    def _topic_hash(self, topic: TopicImage) -> int:
        found = self._hashes.get(topic.name)
        if found is None:
            found = self._hashes[topic.name] = xxh3_64(self._described(topic))
        return found

    def _described(self, topic: TopicImage) -> bytes:
        brokers = self._metadata.brokers
        racks = {node_id: broker.rack for node_id, broker in brokers.items() if broker.rack is not None}
        parts = [_MAGIC, topic.topic_id[7::-1], topic.topic_id[:7:-1], _string(topic.name), _INT.pack(len(topic.partitions))]
        if not racks:
            parts.append(struct.pack(f"<{len(topic.partitions)}i", *range(len(topic.partitions))))
            return b"".join(parts)
        texts = {rack: _INT.pack(len(rack.encode("utf-16-le")) // 2) + _string(rack) for rack in racks.values()}
        for index, partition in enumerate(topic.partitions):
            parts.append(_INT.pack(index))
            parts += [texts[rack] for rack in sorted(racks[replica] for replica in partition.replicas if replica in racks)]
        return b"".join(parts)

    def on_metadata_delta(self, delta: MetadataDelta) -> set[str]:
        """Forget what may be wrong now; the names of the topics that are not what they were."""
        if delta.created_topics:
            self.last_creation_version = self.version
        changed = {topic.name for topic in (*delta.created_topics, *delta.deleted_topics)}
        changed.update(change.topic.name for change in delta.changed_partitions)
        changed.update(added.topic.name for added in delta.added_partitions)
        for name in changed:
            self._hashes.pop(name, None)
        if delta.changed_brokers:
            self._hashes.clear()  # their racks may have changed
        return changed


def _string(text: str) -> bytes:
    """As hash4j's putString: the characters of Java, then their count."""
    characters = text.encode("utf-16-le")
    return characters + _INT.pack(len(characters) // 2)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
