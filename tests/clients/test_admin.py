"""Admin calls of librdkafka, kafka-python and aiokafka; Kafka's command line tools are in test_java_tools.py."""

from __future__ import annotations

import json
from collections.abc import Iterator

import aiokafka.admin
import confluent_kafka
import kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.adapters import ConfluentKafka, run
from tests.clients.members import ConfluentMember, poll_until, share_all
from tests.clients.topics import create_topic, eventually
from tests.support.messages import RECENT_MS, Message
from tests.support.process import ServerProcess

TIMEOUT_S = 60.0


@pytest.fixture
def admin(server: ServerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap})


@pytest.fixture
def kafka_python_admin(server: ServerProcess) -> Iterator[kafka.KafkaAdminClient]:
    client = kafka.KafkaAdminClient(bootstrap_servers=server.bootstrap)
    yield client
    client.close()


def error_name(future: object) -> str:
    """The Kafka error that a librdkafka admin future ends in."""
    with pytest.raises(KafkaException) as caught:
        future.result(TIMEOUT_S)  # type: ignore[attr-defined]
    name: str = caught.value.args[0].name()
    return name


def test_topic_is_created_described_and_deleted(admin: AdminClient, topic_name: str) -> None:
    admin.create_topics([NewTopic(topic_name, num_partitions=3, replication_factor=1)])[topic_name].result(TIMEOUT_S)

    described = admin.describe_topics(confluent_kafka.TopicCollection([topic_name]))[topic_name].result(TIMEOUT_S)
    admin.delete_topics([topic_name])[topic_name].result(TIMEOUT_S)

    assert [(partition.id, partition.leader.id, len(partition.isr)) for partition in described.partitions] == [
        (number, described.partitions[0].leader.id, 1) for number in range(3)
    ]
    eventually(lambda: topic_name not in admin.list_topics(timeout=TIMEOUT_S).topics)


def test_create_errors_are_kafkas(admin: AdminClient, topic_name: str, server: ServerProcess) -> None:
    create_topic(server, topic_name)
    wrong = [
        (NewTopic(topic_name, 1, 1), "TOPIC_ALREADY_EXISTS"),
        (NewTopic(f"{topic_name}/bad name", 1, 1), "TOPIC_EXCEPTION"),
        (NewTopic(f"{topic_name}-a", 0, 1), "INVALID_PARTITIONS"),
        (NewTopic(f"{topic_name}-b", 1, 3), "INVALID_REPLICATION_FACTOR"),
        (NewTopic(f"{topic_name}-c", 1, 1, config={"no.such.config": "1"}), "INVALID_CONFIG"),
        (NewTopic(f"{topic_name}-d", 1, 1, config={"retention.ms": "soon"}), "INVALID_CONFIG"),
    ]

    errors = [error_name(admin.create_topics([topic])[topic.topic]) for topic, _ in wrong]

    assert errors == [expected for _, expected in wrong]


def test_validate_only_creates_nothing(admin: AdminClient, topic_name: str) -> None:
    admin.create_topics([NewTopic(topic_name, 1, 1)], validate_only=True)[topic_name].result(TIMEOUT_S)

    assert topic_name not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_deleting_an_unknown_topic_fails(admin: AdminClient, topic_name: str) -> None:
    assert error_name(admin.delete_topics([topic_name])[topic_name]) == "UNKNOWN_TOPIC_OR_PART"


def test_recreated_topic_is_empty(admin: AdminClient, topic_name: str, server: ServerProcess) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, [Message(0, None, b"old")])
    admin.delete_topics([topic_name])[topic_name].result(TIMEOUT_S)
    create_topic(server, topic_name)

    assert ConfluentKafka().produce(server, topic_name, [Message(0, None, b"new")]) == [0]


def test_partitions_are_added_but_never_taken_away(admin: AdminClient, topic_name: str, server: ServerProcess) -> None:
    create_topic(server, topic_name, partitions=2)

    admin.create_partitions([NewPartitions(topic_name, 5)])[topic_name].result(TIMEOUT_S)
    error = error_name(admin.create_partitions([NewPartitions(topic_name, 3)])[topic_name])

    assert error == "INVALID_PARTITIONS"
    assert len(admin.list_topics(topic_name, timeout=TIMEOUT_S).topics[topic_name].partitions) == 5
    assert ConfluentKafka().produce(server, topic_name, [Message(4, None, b"v")]) == [0]


def test_topic_configs_are_altered_and_take_effect(admin: AdminClient, topic_name: str, server: ServerProcess) -> None:
    create_topic(server, topic_name, config={"retention.ms": "1000000"})
    resource = ConfigResource(ResourceType.TOPIC, topic_name)
    change = ConfigResource(
        ResourceType.TOPIC,
        topic_name,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )

    before = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    admin.incremental_alter_configs([change])[change].result(TIMEOUT_S)
    after = admin.describe_configs([resource])[resource].result(TIMEOUT_S)

    assert (before["retention.ms"].value, before["retention.ms"].source) == ("1000000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    assert (after["retention.ms"].value, after["retention.ms"].source) == ("604800000", ConfigSource.DEFAULT_CONFIG.value)
    assert after["max.message.bytes"].value == "2000"
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        ConfluentKafka().produce(server, topic_name, [Message(0, None, b"x" * 5000)])


def test_describe_configs_names_every_topic_config(admin: AdminClient, topic_name: str, server: ServerProcess) -> None:
    create_topic(server, topic_name)
    resource = ConfigResource(ResourceType.TOPIC, topic_name)

    entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)

    defaults = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": "86400000",
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "index.interval.bytes": "4096",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "1",
        "retention.bytes": "-1",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.ms": "604800000",
    }
    assert {name: entries[name].value for name in defaults} == defaults


def test_broker_configs_are_described(admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    resource = ConfigResource(ResourceType.BROKER, str(cluster.nodes[0].id))

    entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)

    assert entries["log.segment.bytes"].value == "1073741824"
    assert entries["offsets.topic.num.partitions"].value == "4"


def test_cluster_is_described(admin: AdminClient, server: ServerProcess) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)

    assert [(node.host, node.port) for node in cluster.nodes] == [(server.host, server.port)]
    assert cluster.controller.id == cluster.nodes[0].id
    assert len(cluster.cluster_id) == 22


def test_offsets_are_listed_by_position_and_time(admin: AdminClient, topic_name: str, server: ServerProcess) -> None:
    create_topic(server, topic_name)
    ConfluentKafka().produce(server, topic_name, [Message(0, None, b"v", (), RECENT_MS + number) for number in range(10)])
    partition = TopicPartition(topic_name, 0)
    questions = [OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp(), OffsetSpec.for_timestamp(RECENT_MS + 4)]

    answers = [admin.list_offsets({partition: question})[partition].result(TIMEOUT_S).offset for question in questions]

    assert answers == [0, 10, 9, 4]


def test_groups_are_listed_and_described(admin: AdminClient, topic_name: str, server: ServerProcess) -> None:
    create_topic(server, topic_name, partitions=2)
    member = ConfluentMember(server, topic_name, topic_name)
    poll_until([member], lambda _: share_all([member], 2))

    listed = {group.group_id: group for group in admin.list_consumer_groups().result(TIMEOUT_S).valid}
    described = admin.describe_consumer_groups([topic_name])[topic_name].result(TIMEOUT_S)
    member.close()
    empty = admin.describe_consumer_groups([topic_name])[topic_name].result(TIMEOUT_S)

    assert listed[topic_name].state.name == "STABLE"
    assert (described.state.name, described.partition_assignor, len(described.members)) == ("STABLE", "range", 1)
    assert sorted(part.partition for part in described.members[0].assignment.topic_partitions) == [0, 1]
    assert (empty.state.name, len(empty.members)) == ("EMPTY", 0)


def test_group_offsets_are_listed(admin: AdminClient, topic_name: str, server: ServerProcess) -> None:
    create_topic(server, topic_name, partitions=2)
    ConfluentKafka().produce(server, topic_name, [Message(number % 2, None, b"v") for number in range(10)])
    member = ConfluentMember(server, topic_name, topic_name)
    poll_until([member], lambda read: len(read) == 10)
    member.commit()
    member.close()

    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic_name)])[topic_name].result(TIMEOUT_S)

    assert {partition.partition: partition.offset for partition in answer.topic_partitions} == {0: 5, 1: 5}


def test_kafka_python_admin_handles_topics(kafka_python_admin: kafka.KafkaAdminClient, topic_name: str) -> None:
    kafka_python_admin.create_topics({topic_name: {"num_partitions": 2, "replication_factor": 1, "configs": {"segment.ms": "60000"}}})
    kafka_python_admin.create_partitions({topic_name: 4})

    eventually(lambda: len(kafka_python_admin.describe_topics([topic_name])[0]["partitions"]) == 4)
    offsets = kafka_python_admin.describe_topic_partitions([topic_name])
    kafka_python_admin.delete_topics([topic_name])

    assert "'partition_index': 3" in repr(offsets)
    eventually(lambda: topic_name not in kafka_python_admin.list_topics())


def test_kafka_python_admin_describes_the_cluster(kafka_python_admin: kafka.KafkaAdminClient, server: ServerProcess) -> None:
    cluster = kafka_python_admin.describe_cluster()

    assert [(broker["host"], broker["port"]) for broker in cluster["brokers"]] == [(server.host, server.port)]


def test_kafka_python_admin_lists_groups(kafka_python_admin: kafka.KafkaAdminClient, topic_name: str, server: ServerProcess) -> None:
    create_topic(server, topic_name)
    member = ConfluentMember(server, topic_name, topic_name)
    poll_until([member], lambda _: share_all([member], 1))

    listed = json.dumps(kafka_python_admin.list_groups(), default=str)
    described = json.dumps(kafka_python_admin.describe_groups([topic_name]), default=str)
    member.close()

    assert topic_name in listed
    assert "Stable" in described


def test_aiokafka_admin_handles_topics(server: ServerProcess, topic_name: str) -> None:
    async def work() -> int:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=server.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([aiokafka.admin.NewTopic(topic_name, num_partitions=1, replication_factor=1)])
            await admin.create_partitions({topic_name: aiokafka.admin.NewPartitions(total_count=3)})
            described = await admin.describe_topics([topic_name])
            await admin.delete_topics([topic_name])
            return len(described[0]["partitions"])
        finally:
            await admin.close()

    assert run(work()) == 3
    eventually(lambda: topic_name not in AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=TIMEOUT_S).topics)
