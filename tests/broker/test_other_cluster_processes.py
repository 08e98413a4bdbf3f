"""A node whose directories belong to no cluster, or to another than the voters that it names: one line says what to do, and it ends.

Apache Kafka 4.3.1 beside two such voters logged 6,117 lines "Unexpected error INCONSISTENT_CLUSTER_ID in … response", until after 66 s its
broker gave up the registration (initial.broker.registration.timeout.ms).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess
from tests.support.cluster import CLUSTER_ID, Cluster
from tests.support.process import checkout
from tests.support.quorum import DynamicQuorum, dynamic_quorum

OTHER_ID = "mMqNR1tPTaGNDqEpOfDqrw"
END_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Nodes 1 and 2 run; node 3, a voter as well, does not."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.stop(3)
        yield cluster


def run(node: BrokerProcess, *, auto_format: str = "false") -> subprocess.CompletedProcess[str]:
    """The node from its start to its end."""
    return subprocess.run(
        [*node.command(), "--override", f"barnabas.auto.format={auto_format}"],
        env=node.environment(),
        cwd=checkout(),
        capture_output=True,
        text=True,
        timeout=END_TIMEOUT_S,
        check=False,
    )


def lost_node(cluster: Cluster, node_id: int = 3) -> BrokerProcess:
    node = cluster.nodes[node_id]
    assert isinstance(node, BrokerProcess)
    shutil.rmtree(node.data_dir, ignore_errors=True)
    return node


def last_line(ended: subprocess.CompletedProcess[str]) -> str:
    return ended.stderr.rstrip().rpartition("\n")[2]


def test_a_directory_that_is_not_formatted_is_given_the_cluster_s_id_by_the_other_voters(cluster: Cluster) -> None:
    node = lost_node(cluster)

    ended = run(node)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert last_line(ended).startswith(
        f"barnabas: log directory {node.data_dir} is not formatted: run `barnabas format -t {CLUSTER_ID}` with"
    )
    assert all(f"{cluster.nodes[node_id].host}:{cluster.controller_ports[node_id]}" in last_line(ended) for node_id in (1, 2))


def test_automatic_formatting_makes_no_cluster_of_its_own_beside_other_voters(cluster: Cluster) -> None:
    node = lost_node(cluster)

    ended = run(node, auto_format="true")

    assert ended.returncode == 1 and f"start with --cluster-id {CLUSTER_ID}, or" in last_line(ended)
    assert not (node.data_dir / "meta.properties").exists()


def test_voters_that_do_not_answer_are_named(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.kill()
        ended = run(lost_node(cluster))

    assert ended.returncode == 1 and "barnabas format -t CLUSTER_ID" in last_line(ended)
    assert f"127.0.0.1:{cluster.controller_ports[2]}" in last_line(ended)


def test_a_node_of_another_cluster_ends_with_one_line_and_the_others_go_on(cluster: Cluster) -> None:
    node = lost_node(cluster)
    node.format(OTHER_ID)

    ended = run(node)

    line = last_line(ended)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert line.startswith("barnabas: ") and OTHER_ID in line and f"barnabas format -t {CLUSTER_ID}" in line
    assert ended.stderr.count("\n") < 20 and "INCONSISTENT_CLUSTER_ID" not in ended.stderr
    assert cluster.running == (1, 2)

    lost_node(cluster).format(CLUSTER_ID)
    cluster.start(3)
    cluster.stop(3)


def test_a_broker_of_another_cluster_ends_too(cluster: Cluster) -> None:
    node = cluster.add_node(4)
    lost_node(cluster, 4).format(OTHER_ID)
    assert isinstance(node, BrokerProcess)

    ended = run(node)

    assert ended.returncode == 1 and f"barnabas format -t {CLUSTER_ID}" in last_line(ended)


@pytest.fixture
def dynamic(tmp_path: Path) -> Iterator[DynamicQuorum]:
    with dynamic_quorum(tmp_path, {1: "controller", 2: "controller", 3: "controller"}) as made:
        yield made


def test_a_controller_that_lost_its_directory_is_told_to_join_as_an_observer(dynamic: DynamicQuorum) -> None:
    node = dynamic.nodes[3]
    node.stop()
    shutil.rmtree(node.data_dir)

    ended = run(node)

    assert ended.returncode == 1 and f"barnabas format -t {CLUSTER_ID} --no-initial-controllers`" in last_line(ended)

    BrokerProcess.format(node, OTHER_ID, "--no-initial-controllers")
    ended = run(node)

    assert ended.returncode == 1 and f"barnabas format -t {CLUSTER_ID}`" in last_line(ended)
