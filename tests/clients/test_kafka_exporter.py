"""What kafka_exporter asks at one scrape, by the same library (tests/support/go/sarama/scrape.go), against what is known to be there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.foreign_clients import ForeignClient, ForeignMember
from tests.clients.members import poll_until
from tests.clients.topics import create_topic
from tests.support.messages import Message, Stored
from tests.support.process import ServerProcess
from tests.support.secured_cluster import plain

VERSIONS = ("2.0.0", "4.0.0")  # kafka_exporter's default, and one with flexible requests
PARTITIONS = 3
READ = [Message(0, b"read-%d" % number, b"v") for number in range(50)]
UNREAD = [Message(0, b"unread-%d" % number, b"v") for number in range(20)]


@pytest.fixture
def exporter(server: ServerProcess) -> Iterator[ForeignClient]:
    client = ForeignClient("sarama", plain(server))
    yield client
    client.close()


def count_by_partition(records: list[Stored]) -> dict[str, int]:
    """As JSON has it: keys are texts. Partitions without a record are there too."""
    counts = Counter(record.partition for record in records)
    return {str(partition): counts[partition] for partition in range(PARTITIONS)}


def pick(partitions: dict[str, Any], name: str) -> dict[str, Any]:
    return {partition: metrics[name] for partition, metrics in partitions.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_scrape_shows_topics_as_they_are(server: ServerProcess, topic_name: str, exporter: ForeignClient, version: str) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)
    sent = exporter.produce(topic_name, READ)

    scraped = exporter.ask("scrape", version=version)

    (node_id, address), *others = scraped["brokers"].items()
    partitions = scraped["topics"][topic_name]
    assert (address, others) == (server.bootstrap, [])
    assert pick(partitions, "current_offset") == count_by_partition(sent)
    assert pick(partitions, "oldest_offset") == dict.fromkeys(partitions, 0)
    for metrics in partitions.values():
        assert metrics["leader"] == int(node_id)
        assert metrics["replicas"] == metrics["in_sync_replicas"] == [int(node_id)]
        assert metrics["is_writable"] and metrics["is_preferred"] and not metrics["under_replicated"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_scrape_shows_members_offsets_and_lag(server: ServerProcess, topic_name: str, exporter: ForeignClient, version: str) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)
    read = exporter.produce(topic_name, READ)
    member = ForeignMember("sarama", plain(server), topic_name, topic_name)
    poll_until([member], lambda records: len(records) >= len(READ))
    member.commit()
    unread = exporter.produce(topic_name, UNREAD)

    group = exporter.ask("scrape", version=version)["groups"][topic_name]
    member.close()

    offsets = {partition: count for partition, count in count_by_partition(read).items() if count}
    lags = count_by_partition(unread)
    consumed = group["partitions"][topic_name]
    assert (group["members"], group["state"], list(group["partitions"])) == (1, "Stable", [topic_name])
    assert sorted(group["assigned"][topic_name]) == list(range(PARTITIONS))
    assert pick(consumed, "offset") == offsets
    assert pick(consumed, "lag") == {partition: lags[partition] for partition in offsets}


def test_a_scrape_shows_the_lag_of_a_kip_848_group(server: ServerProcess, topic_name: str, exporter: ForeignClient) -> None:
    """Its members are not described to DescribeGroups (Kafka calls the group Dead there); its offsets are."""
    create_topic(server, topic_name, partitions=PARTITIONS)
    sent = count_by_partition(exporter.produce(topic_name, READ))
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": topic_name, "group.protocol": "consumer"})
    consumer.subscribe([topic_name])
    while len(consumer.assignment()) < PARTITIONS:
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(topic_name, partition, 1) for partition in range(PARTITIONS)], asynchronous=False)

    group = exporter.ask("scrape", version=VERSIONS[0])["groups"][topic_name]
    consumer.close()

    consumed = group["partitions"][topic_name]
    assert (group["members"], group["state"]) == (0, "Dead")
    assert pick(consumed, "offset") == {str(partition): 1 for partition in range(PARTITIONS)}
    assert pick(consumed, "lag") == {partition: count - 1 for partition, count in sent.items()}
