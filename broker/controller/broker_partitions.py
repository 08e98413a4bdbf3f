"""BrokerPartitions: an index over a ClusterState that finds the partitions of a broker, and those with another leader than the preferred
one.

Each set is a superset of the answer. A partition is added when it changes, and one that does not belong to the set any more is dropped when
a query meets it. So a change is cheap, and no entry is dropped twice.

The index is built lazily: on the first query or by `begin`. A single node that never asks has none. Large additions are queued, and are
indexed on the next query or by `take_in_steps`.

Source: BrokersToIsrs, BrokersToElrs, ReplicationControlManager.imbalancedPartitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import MIGRATING_DIRECTORY, NO_LEADER, MetadataDelta, PartitionImage, TopicImage

TAKEN_AT_ONCE = 500
"""Partitions that are taken in between two turns, 0.5 µs for each replica."""

Indexes = dict[bytes, set[int]]
"""The indexes of partitions, by topic id."""


class PartitionKey(NamedTuple):
    """A partition of a topic that exists."""

    topic: TopicImage
    partition: int

    @property
    def image(self) -> PartitionImage:
        return self.topic.partitions[self.partition]

    def directory_of(self, node_id: int) -> bytes:
        return directory_of(self.image, node_id)


def directory_of(image: PartitionImage, node_id: int) -> bytes:
    """Returns the log directory of the node's replica; records from before KIP-858 have none."""
    if node_id not in image.replicas or len(image.directories) != len(image.replicas):
        return MIGRATING_DIRECTORY
    return image.directories[image.replicas.index(node_id)]


class _Range(NamedTuple):
    topic: TopicImage
    start: int
    stop: int


class BrokerPartitions:
    """Reads `state`. The Controller calls `note` after each change."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._has_begun = False
        self._ahead: list[_Range] = []  # not indexed yet
        self._led: dict[int, Indexes] = {}
        self._eligible: dict[int, Indexes] = {}  # by node id: as a member of an ISR, or an eligible leader replica
        self._imbalanced: Indexes = {}
        self._reassigning: Indexes = {}

    def begin(self) -> None:
        """Build the index and keep it up to date from now on."""
        if not self._has_begun:
            self._has_begun = True
            self._ahead = [_Range(topic, 0, len(topic.partitions)) for topic in self._state.topics.values()]

    def note(self, delta: MetadataDelta) -> None:
        """Called after the state has changed."""
        if not self._has_begun:
            return
        for topic in delta.deleted_topics:
            self._forget(topic)
        for change in delta.changed_partitions:
            self._take(change.topic.topic_id, change.partition, change.image)
        self._ahead += [_Range(*added) for added in delta.added_partitions]

    def take_in_steps(self) -> Iterator[None]:
        """Index the queued partitions in steps."""
        self.begin()
        while self._take_some():
            yield

    # Queries. Each answer is exact.

    def led_by(self, node_id: int) -> list[PartitionKey]:
        """The partitions that broker `node_id` leads; those without a leader for NO_LEADER."""
        return list(self._finding(self._known(self._led, node_id), lambda image: image.leader == node_id))

    def leaderless(self) -> list[PartitionKey]:
        return self.led_by(NO_LEADER)

    def leads_any(self, node_id: int) -> bool:
        return next(self._finding(self._known(self._led, node_id), lambda image: image.leader == node_id), None) is not None

    def followed_by(self, node_id: int) -> list[PartitionKey]:
        """The partitions that broker `node_id` does not lead, while it is in their ISR or an eligible leader replica."""

        def is_eligible(image: PartitionImage) -> bool:
            return node_id in image.isr or node_id in image.eligible_leader_replicas

        return [key for key in self._finding(self._known(self._eligible, node_id), is_eligible) if key.image.leader != node_id]

    def imbalanced(self) -> Iterator[PartitionKey]:
        """The partitions whose leader is not the preferred one, or that have none. Partitions may change during the iteration."""
        self._take_all()
        return self._finding(self._imbalanced, lambda image: image.leader != image.replicas[0])

    def reassigning(self) -> list[PartitionKey]:
        self._take_all()
        return list(self._finding(self._reassigning, lambda image: bool(image.adding_replicas or image.removing_replicas)))

    # Internals.

    def _known(self, of_nodes: dict[int, Indexes], node_id: int) -> Indexes:
        self._take_all()
        return of_nodes.get(node_id, {})

    def _take_all(self) -> None:
        self.begin()
        while self._take_some():
            pass

    def _finding(self, indexes: Indexes, belongs: Callable[[PartitionImage], bool]) -> Iterator[PartitionKey]:
        """Yields the partitions in `indexes` that belong there and drops the others. Topics may be deleted during the iteration."""
        for topic_id in list(indexes):
            of_topic = indexes.get(topic_id, set())
            topic = self._state.topics_by_id.get(topic_id)
            for index in sorted(of_topic) if topic is not None else ():
                if self._state.topics_by_id.get(topic_id) is not topic:
                    break
                assert topic is not None
                if belongs(topic.partitions[index]):
                    yield PartitionKey(topic, index)
                else:
                    of_topic.discard(index)

    def _take_some(self) -> bool:
        """Index some of the queued partitions. Returns whether there may be more."""
        if not self._ahead:
            return False
        topic, start, stop = self._ahead.pop()
        end = min(stop, start + TAKEN_AT_ONCE)
        if end < stop:
            self._ahead.append(_Range(topic, end, stop))
        for index in range(start, end):
            self._take(topic.topic_id, index, topic.partitions[index])
        return bool(self._ahead)

    def _take(self, topic_id: bytes, index: int, image: PartitionImage) -> None:
        _add(self._led.setdefault(image.leader, {}), topic_id, index)
        for node_id in (*image.isr, *image.eligible_leader_replicas):
            _add(self._eligible.setdefault(node_id, {}), topic_id, index)
        if image.leader != image.replicas[0]:
            _add(self._imbalanced, topic_id, index)
        if image.adding_replicas or image.removing_replicas:
            _add(self._reassigning, topic_id, index)

    def _forget(self, topic: TopicImage) -> None:
        for indexes in (*self._led.values(), *self._eligible.values(), self._imbalanced, self._reassigning):
            indexes.pop(topic.topic_id, None)
        self._ahead = [ahead for ahead in self._ahead if ahead.topic is not topic]


def _add(indexes: Indexes, topic_id: bytes, index: int) -> None:
    found = indexes.get(topic_id)
    if found is None:
        indexes[topic_id] = {index}
    else:
        found.add(index)
