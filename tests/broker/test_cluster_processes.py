"""Three processes of `barnabas serve` are one cluster: topics made through any are on all, a killed controller is replaced."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.cluster import WAIT_MAX_S, Cluster, listens, topics_of
from tests.support.process import ServerProcess, checkout
from tests.support.wire import WireClient


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that were not started yet."""
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def create(node: ServerProcess, name: str) -> bool:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    with WireClient(node.host, node.port) as client:
        response = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 5)
    return response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


def test_three_processes_are_one_cluster(cluster: Cluster) -> None:
    cluster.start()
    for node_id, node in cluster.nodes.items():
        cluster.wait_for(lambda node=node, node_id=node_id: create(node, f"by-{node_id}"), f"node {node_id} creates")  # type: ignore[misc]
    for node_id, node in cluster.nodes.items():
        cluster.wait_for(lambda node=node: topics_of(node) == {"by-1", "by-2", "by-3"}, f"node {node_id} shows")  # type: ignore[misc]

    killed = cluster.controller_id()
    cluster.kill(killed)
    for node_id in cluster.running:
        node = cluster.nodes[node_id]
        cluster.wait_for(lambda node=node, node_id=node_id: create(node, f"later-{node_id}"), f"node {node_id} creates")  # type: ignore[misc]
    everything = {"by-1", "by-2", "by-3", *(f"later-{node_id}" for node_id in cluster.running)}
    cluster.start(killed)

    cluster.wait_for(lambda: topics_of(cluster.nodes[killed]) == everything, "the killed one shows what was created without it")
    assert cluster.stop() == {1: 0, 2: 0, 3: 0}


def test_a_node_that_waits_for_its_quorum_stops_when_it_is_asked_to(cluster: Cluster) -> None:
    node = cluster.nodes[1]
    process = subprocess.Popen(node.command(), env=node.environment(), cwd=checkout(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        cluster.wait_for(lambda: listens(node.host, cluster.controller_ports[1]), "the controller listener to be open")

        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=WAIT_MAX_S)
    finally:
        process.kill()

    assert process.returncode == 0
    assert b"stopped before it was ready" in output and b"Traceback" not in output


def test_a_start_without_a_quorum_ends_when_its_time_is_over(cluster: Cluster) -> None:
    node = cluster.nodes[1]
    command = [*node.command(), "--override", "server.max.startup.time.ms=300"]

    outcome = subprocess.run(command, env=node.environment(), cwd=checkout(), capture_output=True, check=False, timeout=WAIT_MAX_S)

    assert outcome.returncode == 1
    assert b"the start took too long" in outcome.stderr
