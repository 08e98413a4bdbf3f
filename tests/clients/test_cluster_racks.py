"""Stock consumers with a rack read from the replica there, and not from the leader (KIP-392)."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from config.server import RACK_AWARE_SELECTOR
from tests.clients.adapters import ConfluentKafka
from tests.support.cluster import Cluster, free_ports
from tests.support.java_host import JavaHost
from tests.support.messages import Message

COUNT = 200
WAIT_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Node n is in rack "r<n>"; "t" has one partition, everywhere, with all records."""
    racks = {
        node_id: {"broker.rack": f"r{node_id}", "barnabas.metrics.listener": f"127.0.0.1:{port}"}
        for node_id, port in zip((1, 2, 3), free_ports(3), strict=True)
    }
    directory: Path = tmp_path_factory.mktemp("racks")
    with Cluster(directory, settings={"replica.selector.class": RACK_AWARE_SELECTOR}, node_settings=racks) as cluster:
        cluster.create_topic("t")
        ConfluentKafka().produce(cluster.nodes[1], "t", [Message(0, None, b"%d" % number) for number in range(COUNT)])
        yield cluster


def bytes_out(cluster: Cluster) -> dict[int, float]:
    """What each node has sent to consumers of "t"."""
    sent = {}
    for node_id, node in cluster.nodes.items():
        with urllib.request.urlopen(f"http://{node.settings['barnabas.metrics.listener']}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        line = next(line for line in lines if line.startswith('kafka_server_brokertopicmetrics_bytesout_total{topic="t"}'))
        sent[node_id] = float(line.rpartition(" ")[2])
    return sent


def read_by_librdkafka(cluster: Cluster, rack: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "client.rack": rack, "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    read: list[bytes] = []
    while len(read) < COUNT:
        messages = consumer.consume(COUNT, timeout=WAIT_S)
        assert messages, f"{len(read)} of {COUNT} records"
        read += [message.value() for message in messages]
    consumer.close()
    return read


def read_by_java(cluster: Cluster, rack: str, java_host: JavaHost) -> list[bytes | None]:
    config = {"bootstrap.servers": cluster.bootstrap, "client.rack": rack, "auto.offset.reset": "earliest"}
    return [record.value for record in java_host.consume(config, "t", COUNT, timeout_s=WAIT_S)]


@pytest.mark.parametrize("client", ["librdkafka", "java"])
def test_consumers_read_from_the_replica_in_their_rack(cluster: Cluster, client: str, request: pytest.FixtureRequest) -> None:
    leader = cluster.partition("t").leader_id
    near = next(node_id for node_id in cluster.nodes if node_id != leader)
    before = bytes_out(cluster)

    if client == "java":
        read = read_by_java(cluster, f"r{near}", request.getfixturevalue("java_host"))
    else:
        read = list(read_by_librdkafka(cluster, f"r{near}"))

    assert read == [b"%d" % number for number in range(COUNT)]
    after = bytes_out(cluster)
    assert after[near] - before[near] > COUNT
    assert after[leader] == before[leader]
