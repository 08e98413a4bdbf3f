"""What a serving Barnabas leaves on the disk, read by Kafka's tools and taken back by Apache Kafka itself.

The storage layer alone is put before kafka-dump-log in test_dump_log.py; here clients did the writing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.clients.adapters import CODECS, ConfluentKafka
from tests.clients.members import ConfluentMember, poll_until
from tests.clients.topics import as_sent, create_topic, in_order
from tests.support.commits import committed
from tests.support.java_host import JavaHost
from tests.support.messages import Message
from tests.support.process import ServerProcess

PARTITIONS = 2
COUNT = 400
NOW_MS = 1_790_000_000_000
VALUE_SIZE = 5_000
MESSAGES_PER_BATCH = 20
TIMEOUT_S = 60.0
SMALL_SEGMENTS = {"segment.bytes": str(1024 * 1024), "index.interval.bytes": "1000", "retention.ms": "-1"}


def sample() -> list[Message]:
    """About 2 MB over two partitions, of which little can be compressed away."""
    noise = random.Random(1)
    return [
        Message(number % PARTITIONS, b"k%d" % number, noise.randbytes(VALUE_SIZE), (("h", b"x"),), NOW_MS + number)
        for number in range(COUNT)
    ]


def commit_all(server: ServerProcess, topic: str, count: int) -> None:
    member = ConfluentMember(server, topic, topic)
    poll_until([member], lambda read: len(read) >= count)
    member.commit()
    member.close()


def topic_facts(server: ServerProcess, topic: str) -> tuple[str, int, dict[str, str]]:
    """Id, number of partitions and configs of a topic."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    described = admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result(TIMEOUT_S)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return str(described.topic_id), len(described.partitions), {name: configs[name].value for name in SMALL_SEGMENTS}


def committed_offsets(server: ServerProcess, topic: str) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": topic})
    answer = committed(consumer, [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)], TIMEOUT_S)
    consumer.close()
    return [partition.offset for partition in answer]


def joined(paths: Iterable[Path]) -> str:
    return ",".join(sorted(map(str, paths)))


def dump(java_host: JavaHost, *arguments: str) -> str:
    result = java_host.tool("DumpLogSegments", *arguments)
    assert "Found timestamp mismatch" not in result.stdout, result.stdout
    assert "Mismatches in" not in result.stdout, result.stdout
    return result.stdout


def test_dump_log_accepts_the_segments_and_indexes_that_barnabas_wrote(
    make_barnabas: Callable[..., ServerProcess], java_host: JavaHost, topic_name: str
) -> None:
    server = make_barnabas()
    create_topic(server, topic_name, partitions=PARTITIONS, config=SMALL_SEGMENTS)
    for codec in CODECS:
        for first in range(0, COUNT, MESSAGES_PER_BATCH):
            ConfluentKafka().produce(server, topic_name, sample()[first : first + MESSAGES_PER_BATCH], compression=codec)
    server.stop()

    partition_dir = server.data_dir / f"{topic_name}-0"
    logs = sorted(partition_dir.glob("*.log"))
    indexes = sorted([*partition_dir.glob("*.index"), *partition_dir.glob("*.timeindex")])
    verified = dump(java_host, "--deep-iteration", "--verify-index-only", "--files", joined(indexes))
    sane = dump(java_host, "--index-sanity-check", "--files", joined(partition_dir.glob("*.index")))
    deep = dump(java_host, "--deep-iteration", "--print-data-log", "--files", joined(logs))

    assert len(logs) >= 3
    assert verified.count("Dumping") == len(indexes)
    assert sane.count("passed sanity check") == len(logs)
    assert deep.count("| offset:") == COUNT * len(CODECS) // PARTITIONS


def test_dump_log_decodes_the_offsets_and_metadata_that_barnabas_wrote(
    make_barnabas: Callable[..., ServerProcess], java_host: JavaHost, topic_name: str
) -> None:
    server = make_barnabas()
    create_topic(server, topic_name, partitions=PARTITIONS)
    ConfluentKafka().produce(server, topic_name, sample())
    commit_all(server, topic_name, COUNT)
    server.stop()

    offsets = "".join(
        dump(java_host, "--offsets-decoder", "--files", str(log)) for log in sorted(server.data_dir.glob("__consumer_offsets-*/*.log"))
    )
    metadata = dump(java_host, "--cluster-metadata-decoder", "--files", str(next(server.data_dir.glob("__cluster_metadata-0/*.log"))))

    assert f'"topic":"{topic_name}","partition":1' in offsets
    assert f'"offset":{COUNT // PARTITIONS}' in offsets
    assert f'"type":"TOPIC_RECORD","version":0,"data":{{"name":"{topic_name}"' in metadata


def test_apache_kafka_serves_the_topic_directories_of_barnabas(
    make_kafka: Callable[..., ServerProcess], make_barnabas: Callable[..., ServerProcess], topic_name: str
) -> None:
    """Barnabas takes over Kafka's directory, writes on, and Kafka takes it back."""
    kafka = make_kafka()
    create_topic(kafka, topic_name, partitions=PARTITIONS, config=SMALL_SEGMENTS)
    kafka.stop()
    barnabas = make_barnabas({"node.id": "1"}, data_dir=kafka.data_dir)
    ConfluentKafka().produce(barnabas, topic_name, sample(), idempotent=True)
    commit_all(barnabas, topic_name, COUNT)
    facts = topic_facts(barnabas, topic_name)
    barnabas.stop()

    kafka.start()

    assert topic_facts(kafka, topic_name) == facts
    assert committed_offsets(kafka, topic_name) == [COUNT // PARTITIONS] * PARTITIONS
    assert in_order(ConfluentKafka().consume(kafka, topic_name, COUNT)) == as_sent(sample())
