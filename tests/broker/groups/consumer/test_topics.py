"""The hash of a group's topics is Kafka's: hash4j gave the numbers, for Utils.computeTopicHash's and computeGroupHash's input."""

from __future__ import annotations

import pytest

from broker.groups.consumer.topics import GroupTopics
from broker.metadata.cluster_state import ClusterState
from broker.metadata.metadata_cache import MetadataCache
from config.server import ServerConfig
from protocol.messages.stored.metadata_records import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord, TopicRecord

TOPIC_ID = bytes.fromhex("0102030405060708fffffffffffffffe")
OTHER_ID = bytes(range(16))


class World:
    """A topic whose partitions have all brokers as replicas, each partition in another order, and one of one partition."""

    def __init__(self, partition_count: int = 2, racks: tuple[str | None, ...] = (None,)) -> None:
        self.metadata = MetadataCache(ClusterState(), cluster_id="c", node_id=1, config=ServerConfig())
        self.replicas = list(range(1, len(racks) + 1))
        for broker_id, rack in enumerate(racks, 1):
            self.register(broker_id, rack)
        self.create("topic", TOPIC_ID, partition_count)
        self.create("other", OTHER_ID, 1)
        self.topics = GroupTopics(self.metadata)
        self.metadata.subscribe(self.topics.on_metadata_delta)

    def create(self, name: str, topic_id: bytes, partition_count: int) -> None:
        partitions = [self.partition(topic_id, index) for index in range(partition_count)]
        self.metadata.apply_committed([TopicRecord(name=name, topic_id=topic_id), *partitions])

    def partition(self, topic_id: bytes, index: int) -> PartitionRecord:
        first = index % len(self.replicas)
        replicas = self.replicas[first:] + self.replicas[:first]
        return PartitionRecord(
            partition_id=index, topic_id=topic_id, replicas=replicas, isr=replicas, leader=1, leader_epoch=0, partition_epoch=0
        )

    def register(self, broker_id: int, rack: str | None) -> None:
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="host", port=9092, security_protocol=0)
        self.metadata.apply_committed([RegisterBrokerRecord(broker_id=broker_id, end_points=[endpoint], rack=rack, fenced=False)])


@pytest.mark.parametrize(
    ("partition_count", "racks", "of_topic", "of_both"),
    [
        (2, (None,), -2522011663959532074, 2902096723013542379),
        (20_000, (None,), -8050124958952827165, -7251755600495687343),
        (2, ("r",), -618181580363978478, 492449744488428804),
        (700, ("ra", "r\U0001f600", None), 553250076190701846, 8951067524811291920),
    ],
)
def test_hash_of_topics_is_kafka_s(partition_count: int, racks: tuple[str | None, ...], of_topic: int, of_both: int):
    topics = World(partition_count, racks).topics

    assert (topics.hash_of(["topic"]), topics.hash_of(["topic", "other"])) == (of_topic, of_both)


def test_topics_that_do_not_exist_do_not_count():
    topics = World().topics

    assert topics.hash_of(["topic", "missing"]) == topics.hash_of(["topic"]) != 0
    assert topics.hash_of(["missing"]) == 0


def test_topic_that_changed_is_hashed_anew():
    world = World(2)
    before = world.topics.hash_of(["topic"])

    world.metadata.apply_committed([world.partition(TOPIC_ID, 2)])

    assert world.topics.hash_of(["topic"]) == World(3).topics.hash_of(["topic"]) != before


def test_racks_that_changed_are_hashed_anew():
    world = World(2, ("r",))
    before = world.topics.hash_of(["topic"])

    world.register(1, "s")

    assert world.topics.hash_of(["topic"]) == World(2, ("s",)).topics.hash_of(["topic"]) != before
