"""PendingOffsets: the offsets of open transactions of one shard, until the producer's end marker (Kafka's OpenTransactions).

They are kept by partition, so that finding what is pending costs the same with any number of open transactions, and each producer's
partitions are known, so that its marker finds them. Owned by an OffsetMetadataManager; changed in replay alone, through the timeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from broker.coordination.timeline import Timeline
    from broker.groups.committed_offset import CommittedOffset


class GroupPartition(NamedTuple):
    """A partition of which a group commits the offset."""

    group: str
    topic: str
    partition: int


Producers = dict[int, "CommittedOffset"]
"""The pending offsets of one partition, by producer id."""


class PendingOffsets:
    """See the module's docstring. No empty dict is kept."""

    __slots__ = ("_by_group", "_by_producer", "_timeline")

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._by_group: dict[str, dict[str, dict[int, Producers]]] = {}
        self._by_producer: dict[int, dict[GroupPartition, None]] = {}

    # Changing.

    def put(self, producer_id: int, place: GroupPartition, committed: CommittedOffset) -> None:
        """A producer's transaction commits an offset; it replaces one that the transaction has committed before."""
        partitions = self._inner(self._inner(self._by_group, place.group), place.topic)
        self._timeline.put(self._inner(partitions, place.partition), producer_id, committed)
        places = self._inner(self._by_producer, producer_id)
        if place not in places:
            self._timeline.put(places, place, None)

    def take(self, producer_id: int) -> list[tuple[GroupPartition, CommittedOffset]]:
        """Remove and return the offsets of a producer's transaction, which has ended."""
        places = self._by_producer.get(producer_id)
        if places is None:
            return []
        self._timeline.remove(self._by_producer, producer_id)
        taken = []
        for place in places:
            producers = self._by_group[place.group][place.topic][place.partition]
            taken.append((place, producers[producer_id]))
            if len(producers) == 1:
                self._remove_partition(place)  # with the dict, as it is: it is not looked at again
            else:
                self._timeline.remove(producers, producer_id)
        return taken

    def remove(self, place: GroupPartition) -> None:
        """Forget the offsets of all transactions for that partition: a tombstone takes them too, and no marker brings them back."""
        producers = self.of_partition(place)
        for producer_id in producers:
            places = self._by_producer[producer_id]
            self._timeline.remove(places, place)
            if not places:
                self._timeline.remove(self._by_producer, producer_id)
        if producers:
            self._remove_partition(place)

    # Reading what is written.

    def has_group(self, group: str) -> bool:
        return group in self._by_group

    def of_partition(self, place: GroupPartition) -> Mapping[int, CommittedOffset]:
        """By producer id; empty if there are none."""
        return self._by_group.get(place.group, {}).get(place.topic, {}).get(place.partition, {})

    def of_group(self, group: str) -> Iterator[GroupPartition]:
        """The partitions with pending offsets. To be read before anything else runs."""
        for topic, partitions in self._by_group.get(group, {}).items():
            for partition in partitions:
                yield GroupPartition(group, topic, partition)

    def of_topics(self, topics: Mapping[str, object]) -> Iterator[tuple[GroupPartition, Mapping[int, CommittedOffset]]]:
        """The pending offsets in topics with these names. To be read before anything else runs."""
        for group, by_topic in self._by_group.items():
            for topic in by_topic.keys() & topics.keys():
                for partition, producers in by_topic[topic].items():
                    yield GroupPartition(group, topic, partition), producers

    # Reading what is committed.

    def has_committed(self, place: GroupPartition) -> bool:
        """Whether a transaction that is open, as far as is committed, has the partition's offset."""
        committed = self._timeline.committed
        return place.partition in committed(committed(committed(self._by_group).get(place.group, {})).get(place.topic, {}))

    def _remove_partition(self, place: GroupPartition) -> None:
        by_topic = self._by_group[place.group]
        partitions = by_topic[place.topic]
        self._timeline.remove(partitions, place.partition)
        if not partitions:
            self._timeline.remove(by_topic, place.topic)
        if not by_topic:
            self._timeline.remove(self._by_group, place.group)

    def _inner(self, mapping: dict[Any, dict[Any, Any]], key: Any) -> dict[Any, Any]:
        inner = mapping.get(key)
        if inner is None:
            inner = {}
            self._timeline.put(mapping, key, inner)
        return inner
