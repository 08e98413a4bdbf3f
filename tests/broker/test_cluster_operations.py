"""What docs/operations.md says of a cluster's life: nodes are added and replaced under the same id, and topics keep their records."""

from __future__ import annotations

import shutil
from pathlib import Path

import confluent_kafka

from tests.faults.replicas import differences
from tests.support.broker import BrokerProcess
from tests.support.cluster import BARNABAS, Cluster

RECORDS = 500
TIMEOUT_S = 60


def produce(cluster: Cluster, topic: str, start: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(start, start + RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def values(cluster: Cluster, topic: str, count: int) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = [int(message.value()) for message in consumer.consume(count, timeout=TIMEOUT_S) if message.error() is None]
    consumer.close()
    return found


def test_a_node_that_lost_its_disk_is_replaced_under_its_id(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.create_topic("a")
        produce(cluster, "a", 0)
        cluster.kill(3)
        produce(cluster, "a", RECORDS)

        lost = cluster.nodes[3]
        assert isinstance(lost, BrokerProcess)
        shutil.rmtree(lost.data_dir)
        lost.format(cluster.cluster_id)
        cluster.start(3)

        cluster.wait_in_sync("a")
        assert differences(cluster, "a", {0: 2 * RECORDS}) == []
        assert values(cluster, "a", 2 * RECORDS) == list(range(2 * RECORDS))


def test_a_node_that_is_added_gets_partitions_of_new_topics(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.create_topic("before", 3)
        cluster.add_node(4, BARNABAS)
        cluster.start(4)
        cluster.wait_for(lambda: 4 in [broker.node_id for broker in cluster.metadata("before").brokers], "the new one to be unfenced")

        cluster.create_topic("after", 8)

        hosts = {replica for partition in cluster.metadata("after").topics[0].partitions for replica in partition.replica_nodes}
        assert hosts == {1, 2, 3, 4}
        assert all(4 not in partition.replica_nodes for partition in cluster.metadata("before").topics[0].partitions)
