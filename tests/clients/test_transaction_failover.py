"""Transactions of stock producers on three brokers while brokers are killed. kafka-python is left out: it waits for ever for a coordinator
that was killed, also with Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.clients.transactional import MakeProducer, committed_offset, read, run_transaction
from tests.support.cluster import Cluster

SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
TRANSACTION_KEY_TYPE = 1
PARTITIONS = 3

pytestmark = pytest.mark.parametrize("make_producer", ["confluent-kafka", "aiokafka", "java"], indirect=True)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        yield cluster


def coordinator_of(cluster: Cluster, transactional_id: str) -> int:
    request = FindCoordinatorRequest(key_type=TRANSACTION_KEY_TYPE, coordinator_keys=[transactional_id])
    return cluster.wait_for(lambda: max(cluster.ask(request, 6).coordinators[0].node_id, 0), f"a coordinator of {transactional_id}")


def test_a_transaction_is_committed_after_its_coordinator_was_killed(cluster: Cluster, make_producer: MakeProducer) -> None:
    producer = make_producer(cluster, "t")
    producer.init()
    run_transaction(producer, "t", "before", "hidden", is_committed=False, partitions=PARTITIONS)
    run_transaction(producer, "t", *"abc", partitions=PARTITIONS)
    producer.begin()
    for partition in range(PARTITIONS):
        producer.send("t", f"open {partition}", partition)
    producer.commit_offset("g", "t", 5)

    killed = coordinator_of(cluster, "t")
    cluster.kill(killed)
    producer.commit()
    run_transaction(producer, "t", *"xyz", partitions=PARTITIONS)
    cluster.start(killed)
    run_transaction(producer, "t", *"uvw", partitions=PARTITIONS)

    assert read(cluster, "t", count=12, partitions=PARTITIONS) == sorted([*"abcxyzuvw", "open 0", "open 1", "open 2"])
    assert committed_offset(cluster, "g", "t") == 5


def test_a_transaction_is_aborted_after_a_leader_of_its_partitions_was_killed(cluster: Cluster, make_producer: MakeProducer) -> None:
    producer = make_producer(cluster, "t")
    producer.init()
    producer.begin()
    for partition in range(PARTITIONS):
        producer.send("t", f"open {partition}", partition)

    leaders = {cluster.partition("t", index).leader_id for index in range(PARTITIONS)}
    killed = min(leaders - {coordinator_of(cluster, "t")})
    cluster.kill(killed)
    producer.abort()
    run_transaction(producer, "t", *"xyz", partitions=PARTITIONS)

    assert read(cluster, "t", count=3, partitions=PARTITIONS) == ["x", "y", "z"]


def test_a_transaction_is_committed_after_all_brokers_were_killed(cluster: Cluster, make_producer: MakeProducer) -> None:
    producer = make_producer(cluster, "t")
    producer.init()
    run_transaction(producer, "t", *"abc", partitions=PARTITIONS)
    producer.begin()
    for partition in range(PARTITIONS):
        producer.send("t", f"open {partition}", partition)

    cluster.kill()
    cluster.start()
    producer.send("t", "after")
    producer.commit()

    assert read(cluster, "t", count=7, partitions=PARTITIONS) == ["a", "after", "b", "c", "open 0", "open 1", "open 2"]
