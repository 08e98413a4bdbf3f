"""The hash of a group's topics is Kafka's: hash4j gave the numbers, for Utils.computeTopicHash's and computeGroupHash's input. Large
topics are hashed in pieces."""

from __future__ import annotations

import pytest

from broker.groups.consumer.jobs import GroupJobs
from broker.groups.consumer.topics import BYTES_AT_ONCE, DESCRIPTION_BYTES, PARTITION_BYTES, GroupTopics
from broker.metadata.cluster_state import ClusterState
from broker.metadata.metadata_cache import MetadataCache
from config.server import ServerConfig
from protocol.messages.stored.metadata_records import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord, TopicRecord
from tests.support.clock import ManualClock

TOPIC_ID = bytes.fromhex("0102030405060708fffffffffffffffe")
LARGE = BYTES_AT_ONCE // PARTITION_BYTES + 1

pytestmark = pytest.mark.usefixtures("one_piece_in_each_turn")


class World:
    """Topics with this broker's replicas. `turn` lets a job do a piece."""

    def __init__(self, partition_count: int = 2, *, rack: str | None = None) -> None:
        self.clock = ManualClock()
        self.metadata = MetadataCache(ClusterState(), cluster_id="c", node_id=1, config=ServerConfig())
        if rack is not None:
            self.register(rack)
        self.create("topic", TOPIC_ID, partition_count)
        self.topics = GroupTopics(self.metadata, GroupJobs(self.clock))
        self.metadata.subscribe(self.topics.on_metadata_delta)

    def create(self, name: str, topic_id: bytes, partition_count: int) -> None:
        self.metadata.apply_committed(
            [TopicRecord(name=name, topic_id=topic_id), *(partition(topic_id, index) for index in range(partition_count))]
        )

    def register(self, rack: str) -> None:
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="host", port=9092, security_protocol=0)
        self.metadata.apply_committed([RegisterBrokerRecord(broker_id=1, end_points=[endpoint], rack=rack, fenced=False)])

    def turn(self) -> None:
        timer = self.clock.pending_timers[0]
        timer.cancel()
        timer.fire()


def partition(topic_id: bytes, index: int) -> PartitionRecord:
    return PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0)


def test_hash_of_a_topic_is_kafka_s():
    world = World()

    world.topics.find_hash(["topic"])

    assert world.topics._hashes == {"topic": 14637508402630179377}


def test_topics_that_do_not_exist_do_not_count():
    topics = World().topics

    assert topics.find_hash(["topic", "other"]) == topics.find_hash(["topic"]) not in (0, None)
    assert topics.find_hash(["other"]) == 0


def test_hash_of_a_large_topic_is_known_later():
    world = World(LARGE, rack="r")

    assert world.topics.find_hash(["topic"]) is None
    world.turn()
    assert world.topics.find_hash(["topic"]) is None
    world.clock.advance(0)

    assert world.topics.find_hash(["topic"]) not in (0, None)


def test_hash_in_pieces_is_the_same_as_at_once():
    count = 2_000
    at_once, in_pieces = World(count), World(count)
    for number in range((BYTES_AT_ONCE - count * PARTITION_BYTES) // DESCRIPTION_BYTES):
        in_pieces.create(f"other-{number}", number.to_bytes(16, "big"), 1)

    assert at_once.topics.find_hash(["topic"]) is not None
    assert in_pieces.topics.find_hash(in_pieces.topics.names()) is None
    in_pieces.clock.advance(0)

    assert in_pieces.topics.find_hash(["topic"]) == at_once.topics.find_hash(["topic"])


def test_what_was_computed_of_a_topic_that_changed_meanwhile_is_dropped():
    world = World(LARGE)
    assert world.topics.find_hash(["topic"]) is None
    world.turn()

    world.metadata.apply_committed([partition(TOPIC_ID, LARGE)])
    world.topics.find_hash(["topic"])
    world.clock.advance(0)

    assert world.topics.find_hash(["topic"]) == whole_hash(LARGE + 1)


def test_racks_that_changed_meanwhile_are_not_mixed_up():
    world = World(LARGE, rack="r")
    assert world.topics.find_hash(["topic"]) is None
    world.turn()

    world.register("s")
    world.topics.find_hash(["topic"])
    world.clock.advance(0)

    assert world.topics.find_hash(["topic"]) == whole_hash(LARGE, rack="s") != whole_hash(LARGE, rack="r")


def whole_hash(partition_count: int, *, rack: str | None = None) -> int | None:
    """Of a topic that nobody changes."""
    world = World(partition_count, rack=rack)
    world.topics.find_hash(["topic"])
    world.clock.advance(0)
    return world.topics.find_hash(["topic"])
