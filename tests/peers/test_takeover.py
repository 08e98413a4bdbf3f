"""Barnabas serves what a single-node Apache Kafka left behind: started with Kafka's own server.properties on Kafka's own directory.

Topics, ids, configurations, records and committed offsets are those of Kafka; so are the next ones' places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from kafka import KafkaProducer

from tests.clients.topics import create_topic
from tests.support import commits
from tests.support.broker import OnKafkasProperties
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess

RECORDS = 300
GROUP = "readers"
COMMITTED = 123
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Left:
    """What was there when Kafka went: the topic's id by DescribeTopics, and the server that has taken over."""

    topic_id: str
    barnabas: ServerProcess


@pytest.fixture(scope="module", params=["stopped", "killed"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    kafka_jars()
    kafka = KafkaServer(tmp_path_factory.mktemp("takeover"))
    kafka.start()
    create_topic(kafka, "orders", partitions=2, config={"retention.ms": "123456789", "max.message.bytes": "2000000"})
    produce(kafka, range(RECORDS))
    commit(kafka)
    topic_id = describe_topic_id(kafka)
    if request.param == "stopped":
        kafka.stop()
    else:
        kafka.kill()
    barnabas = OnKafkasProperties(kafka.directory)
    barnabas.port = kafka.port
    barnabas.start()
    yield Left(topic_id, barnabas)
    barnabas.kill()


def produce(server: ServerProcess, numbers: range) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, compression_type="lz4")
    for number in numbers:
        producer.send("orders", key=b"%d" % number, value=b"v%d" % number, partition=number % 2)
    producer.flush()
    producer.close()


def commit(server: ServerProcess) -> None:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": GROUP})
    commits.commit(consumer, [TopicPartition("orders", 0, COMMITTED)], TIMEOUT_S)
    consumer.close()


def describe_topic_id(server: ServerProcess) -> str:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    return str(admin.describe_topics(TopicCollection(["orders"]))["orders"].result().topic_id)


def read_partition(server: ServerProcess, partition: int, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", partition, 0)])
    found: list[Message] = []
    while len(found) < count:
        batch = consumer.consume(count - len(found), timeout=TIMEOUT_S)
        assert batch, f"{len(found)} of {count} records arrived"
        found += batch
    consumer.close()
    return found


def test_topics_and_their_ids_are_kafkas(left: Left) -> None:
    assert describe_topic_id(left.barnabas) == left.topic_id


def test_topic_configs_are_kafkas(left: Left) -> None:
    admin = AdminClient({"bootstrap.servers": left.barnabas.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, "orders")

    configs = admin.describe_configs([resource])[resource].result()

    assert (configs["retention.ms"].value, configs["max.message.bytes"].value) == ("123456789", "2000000")


def test_committed_offsets_are_kafkas(left: Left) -> None:
    consumer = Consumer({"bootstrap.servers": left.barnabas.bootstrap, "group.id": GROUP})

    (found,) = commits.committed(consumer, [TopicPartition("orders", 0)], TIMEOUT_S)
    consumer.close()

    assert found.offset == COMMITTED


def test_records_are_kafkas_and_new_ones_follow_them(left: Left) -> None:
    produce(left.barnabas, range(RECORDS, RECORDS + 10))

    for partition in (0, 1):
        found = read_partition(left.barnabas, partition, RECORDS // 2 + 5)

        assert [message.offset() for message in found] == list(range(RECORDS // 2 + 5))
        assert [message.value() for message in found] == [b"v%d" % n for n in range(partition, RECORDS + 10, 2)]


def test_a_restart_keeps_it_all(left: Left) -> None:
    left.barnabas.kill()
    left.barnabas.start()

    assert describe_topic_id(left.barnabas) == left.topic_id
    assert read_partition(left.barnabas, 1, RECORDS // 2)[-1].offset() == RECORDS // 2 - 1
