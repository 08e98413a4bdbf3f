"""The hash of a group's topics is Kafka's: hash4j gave the numbers, for Utils.computeTopicHash's and computeGroupHash's input."""

from __future__ import annotations

from broker.groups.modern.topics import GroupTopics
from broker.metadata.cluster_state import ClusterState
from broker.metadata.metadata_cache import MetadataCache
from config.server import ServerConfig
from protocol.messages.stored.metadata_records import PartitionRecord, TopicRecord

TOPIC_ID = bytes.fromhex("0102030405060708fffffffffffffffe")


def topics() -> GroupTopics:
    metadata = MetadataCache(ClusterState(), cluster_id="c", node_id=1, config=ServerConfig())
    partitions = [
        PartitionRecord(partition_id=index, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0)
        for index in range(2)
    ]
    metadata.apply_committed([TopicRecord(name="topic", topic_id=TOPIC_ID), *partitions])
    return GroupTopics(metadata)


def test_hash_of_a_topic_is_kafka_s():
    found = topics()

    assert found._topic_hash(found._metadata.topics["topic"]) == 14637508402630179377


def test_topics_that_do_not_exist_do_not_count():
    found = topics()

    assert found.hash_of(["topic", "other"]) == found.hash_of(["topic"]) != 0
    assert found.hash_of(["other"]) == 0
