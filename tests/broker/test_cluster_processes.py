"""A process of `barnabas serve` that waits for the other voters of its quorum."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import WAIT_MAX_S, Cluster, listens
from tests.support.process import checkout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that were not started yet."""
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


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
