"""Kafka Connect on a cluster of three: its worker's and its sinks' coordinators die under it, and the leaders of all its topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connect.conftest import GROUP
from tests.connect.connectors import Connectors, Feed, firsts, read_lines
from tests.support.cluster import REPLICATION_FACTOR, Cluster
from tests.support.connect import ConnectWorker
from tests.support.secured_cluster import Endpoint

TOPICS = ("connect-configs", "connect-offsets", "connect-status", "lines")
MIDST = 300


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def cluster_worker(cluster: Cluster, tmp_path: Path) -> Iterator[ConnectWorker]:
    process = ConnectWorker(tmp_path / "worker", Endpoint(cluster.nodes[1], {"bootstrap.servers": cluster.bootstrap}), GROUP)
    process.start()
    yield process
    process.kill()


def test_nothing_is_lost_when_each_broker_is_killed_in_turn(cluster: Cluster, cluster_worker: ConnectWorker, tmp_path: Path) -> None:
    source_file, sink_file = tmp_path / "source.txt", tmp_path / "sink.txt"
    connectors = Connectors(cluster_worker, tmp_path, "lines")
    connectors.start_source(source_file)
    connectors.start_sink(sink_file)

    with Feed(source_file) as feed:
        for node_id in cluster.brokers:
            arrived = len(read_lines(sink_file))
            cluster_worker.wait_for(lambda arrived=arrived: len(read_lines(sink_file)) > arrived + MIDST, "the midst")  # type: ignore[misc]
            cluster.restart(node_id, hard=True)
            cluster.wait_in_sync()
    connectors.wait_lines(sink_file, feed.lines)

    assert firsts(read_lines(sink_file)) == feed.lines
    replicas = [len(partition.replica_nodes) for topic in cluster.metadata(*TOPICS).topics for partition in topic.partitions]
    assert set(replicas) == {REPLICATION_FACTOR}
