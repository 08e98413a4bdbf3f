"""What Prometheus reads of three processes of one cluster: replication, elections, the quorum, before and after a kill -9."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.adapters import ConfluentKafka
from tests.support.cluster import BARNABAS, Cluster, free_ports
from tests.support.messages import Message

PARTITIONS = 3
COUNT = 60
MANAGER = "kafka_server_replicamanager"
CONTROLLER = "kafka_controller_kafkacontroller"
RAFT = "kafka_server_raftmetrics"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    listeners = {
        node_id: {"barnabas.metrics.listener": f"127.0.0.1:{port}"} for node_id, port in zip((1, 2, 3), free_ports(3), strict=True)
    }
    with Cluster(tmp_path, node_settings=listeners) as cluster:
        yield cluster


def scrape(cluster: Cluster) -> dict[int, dict[str, float]]:
    """What each running node tells."""
    return {node_id: _scrape(cluster.nodes[node_id].settings["barnabas.metrics.listener"]) for node_id in cluster.running}


def readiness(cluster: Cluster, node_id: int) -> tuple[int, str]:
    return _get(cluster.nodes[node_id].settings["barnabas.metrics.listener"], "ready")


def _get(address: str, path: str) -> tuple[int, str]:
    """The status and the text."""
    try:
        with urllib.request.urlopen(f"http://{address}/{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _scrape(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {key: float(value) for key, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def wait_for_sum(cluster: Cluster, name: str, wanted: float) -> None:
    cluster.wait_for(lambda: sum(values[name] for values in scrape(cluster).values()) == wanted, f"{name} to be {wanted} in all")


def is_quorum_told(values: dict[str, float], leader_id: int) -> bool:
    """Whether a node tells of the quorum what this leader's followers know."""
    return (
        values[f"{RAFT}_current_leader"] == leader_id
        and values[f"{RAFT}_current_epoch"] >= 1
        and 0 < values[f"{RAFT}_high_watermark"] <= values[f"{RAFT}_log_end_offset"]
        and values[f"{RAFT}_number_of_voters"] == 3
    )


def test_replication_and_quorum_are_told_before_and_after_a_node_is_killed(cluster: Cluster) -> None:
    cluster.create_topic("t", partitions=PARTITIONS)
    messages = [Message(number % PARTITIONS, None, b"%d" % number) for number in range(COUNT)]
    ConfluentKafka().produce(cluster.nodes[1], "t", messages)
    wait_for_sum(cluster, f"{MANAGER}_leadercount", PARTITIONS)
    wait_for_sum(cluster, f"{MANAGER}_underreplicatedpartitions", 0)
    wait_for_sum(cluster, 'kafka_server_replicafetchermanager_maxlag{clientid="Replica"}', 0)
    first = scrape(cluster)

    (controller_id,) = [node_id for node_id, values in first.items() if values[f"{CONTROLLER}_activecontrollercount"] == 1]
    assert all(is_quorum_told(values, controller_id) for values in first.values())
    assert first[controller_id][f'{RAFT}_current_state{{current_state="leader"}}'] == 1
    for direction in ("in", "out"):
        assert sum(values[f"kafka_server_brokertopicmetrics_replicationbytes{direction}_total"] for values in first.values()) > 2 * COUNT
    assert all(values["kafka_server_brokertopicmetrics_bytesout_total"] == 0 for values in first.values())  # no consumer has read
    assert all(values[f"{CONTROLLER}_activebrokercount"] == 3 for values in first.values())

    killed = next(node_id for node_id in cluster.running if node_id != controller_id)
    cluster.kill(killed)
    wait_for_sum(cluster, f"{CONTROLLER}_fencedbrokercount", 2)
    wait_for_sum(cluster, f"{MANAGER}_underreplicatedpartitions", PARTITIONS)
    wait_for_sum(cluster, f"{MANAGER}_atminisrpartitioncount", PARTITIONS)
    second = scrape(cluster)

    led_count = first[killed][f"{MANAGER}_leadercount"]
    elections = "kafka_controller_controllerstats_leaderelectionrateandtimems_count"
    for node_id, values in second.items():
        assert values[elections] - first[node_id][elections] == led_count
        assert values["kafka_controller_controllerstats_uncleanleaderelections_total"] == 0
        assert values[f"{MANAGER}_underminisrpartitioncount"] == values[f"{CONTROLLER}_offlinepartitionscount"] == 0

    cluster.start(killed)
    cluster.wait_in_sync("t")
    wait_for_sum(cluster, f"{CONTROLLER}_activebrokercount", 9)
    third = scrape(cluster)
    assert sum(values[f"{MANAGER}_isrexpands_total"] for values in third.values()) == PARTITIONS

    assert [readiness(cluster, node_id) for node_id in cluster.running] == [(200, "ready\n")] * 3
    for node_id in (1, 2):
        cluster.kill(node_id)
    cluster.wait_for(lambda: readiness(cluster, 3)[0] == 503, "a broker without a quorum not to be ready")
    assert readiness(cluster, 3)[1] == "the metadata quorum has no leader that this node knows\n"
    assert _get(cluster.nodes[3].settings["barnabas.metrics.listener"], "health")[0] == 200


def test_a_controller_alone_tells_of_the_cluster_and_nothing_of_replicas(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    node_settings = {
        1: {"process.roles": "controller", "barnabas.metrics.listener": f"127.0.0.1:{port}"},
        2: {"process.roles": "broker"},
    }
    with Cluster(tmp_path, [BARNABAS, BARNABAS], node_settings=node_settings) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)

        values = _scrape(f"127.0.0.1:{port}")

        assert values[f"{CONTROLLER}_activecontrollercount"] == values[f"{CONTROLLER}_activebrokercount"] == 1
        assert values[f"{CONTROLLER}_globalpartitioncount"] == PARTITIONS
        assert f"{MANAGER}_partitioncount" not in values
        assert _get(f"127.0.0.1:{port}", "ready") == (200, "ready\n")
        assert cluster.stop() == {1: 0, 2: 0}
