"""What Prometheus reads of three processes of one cluster: replication, elections, the quorum, before and after a kill -9."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.test_cluster_processes import make_node, start, until
from tests.clients.adapters import ConfluentKafka
from tests.support.broker import BrokerProcess
from tests.support.messages import Message
from tests.support.process import free_port
from tests.support.wire import WireClient

PARTITIONS = 3
COUNT = 60
MANAGER = "kafka_server_replicamanager"
CONTROLLER = "kafka_controller_kafkacontroller"
RAFT = "kafka_server_raftmetrics"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[int, BrokerProcess]]:
    ports = {node_id: free_port() for node_id in (1, 2, 3)}
    voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
    made = {node_id: make_node(tmp_path, node_id, voters, port) for node_id, port in ports.items()}
    for node in made.values():
        node.settings |= {
            "barnabas.metrics.listener": f"127.0.0.1:{free_port()}",
            "min.insync.replicas": "2",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        }
    start(made)
    yield made
    for node in made.values():
        if node.is_running:
            node.kill()


def scrape(node: BrokerProcess) -> dict[str, float]:
    url = f"http://{node.settings['barnabas.metrics.listener']}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {key: float(value) for key, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def create(node: BrokerProcess, name: str) -> bool:
    topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=3)
    with WireClient(node.host, node.port) as client:
        return client.request(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 5).topics[0].error_code in (0, 36)


def all_of(nodes: dict[int, BrokerProcess], name: str) -> list[float]:
    return [scrape(node)[name] for node in nodes.values()]


def is_quorum_told(values: dict[str, float], leader_id: int) -> bool:
    """Whether a node tells of the quorum what this leader's followers know."""
    return (
        values[f"{RAFT}_current_leader"] == leader_id
        and values[f"{RAFT}_current_epoch"] >= 1
        and 0 < values[f"{RAFT}_high_watermark"] <= values[f"{RAFT}_log_end_offset"]
        and values[f"{RAFT}_number_of_voters"] == 3
    )


def test_replication_and_quorum_are_told_before_and_after_a_node_is_killed(nodes: dict[int, BrokerProcess]) -> None:
    until(lambda: create(nodes[1], "t"), "the topic is created")
    messages = [Message(number % PARTITIONS, None, b"%d" % number) for number in range(COUNT)]
    ConfluentKafka().produce(nodes[1], "t", messages)

    until(lambda: sum(all_of(nodes, f"{MANAGER}_leadercount")) == PARTITIONS, "each partition is led by one")
    until(lambda: all_of(nodes, f"{MANAGER}_underreplicatedpartitions") == [0, 0, 0], "the ISRs are full")
    until(lambda: sum(all_of(nodes, "kafka_server_brokertopicmetrics_replicationbytesin_total")) > 2 * COUNT, "followers count bytes")
    until(lambda: all_of(nodes, 'kafka_server_replicafetchermanager_maxlag{clientid="Replica"}') == [0, 0, 0], "followers have caught up")
    first = {node_id: scrape(node) for node_id, node in nodes.items()}
    (controller_id,) = [node_id for node_id, values in first.items() if values[f"{CONTROLLER}_activecontrollercount"] == 1]
    assert all(is_quorum_told(values, controller_id) for values in first.values())
    assert first[controller_id][f'{RAFT}_current_state{{current_state="leader"}}'] == 1
    assert sum(values["kafka_server_brokertopicmetrics_replicationbytesout_total"] for values in first.values()) > 0
    assert all(values["kafka_server_brokertopicmetrics_bytesout_total"] == 0 for values in first.values())  # no consumer has read
    assert all(values[f"{CONTROLLER}_activebrokercount"] == 3 for values in first.values())

    killed_id = next(node_id for node_id in nodes if node_id != controller_id)
    killed = nodes.pop(killed_id)
    killed.kill()
    until(lambda: all_of(nodes, f"{CONTROLLER}_fencedbrokercount") == [1, 1], "it is fenced")
    until(lambda: sum(all_of(nodes, f"{MANAGER}_underreplicatedpartitions")) == PARTITIONS, "all lack a replica")
    assert sum(all_of(nodes, f"{MANAGER}_atminisrpartitioncount")) == PARTITIONS
    assert all_of(nodes, f"{MANAGER}_underminisrpartitioncount") == [0, 0]
    assert all_of(nodes, f"{CONTROLLER}_offlinepartitionscount") == [0, 0]
    led_count = first[killed_id][f"{MANAGER}_leadercount"]
    elections = "kafka_controller_controllerstats_leaderelectionrateandtimems_count"
    assert [scrape(node)[elections] - first[node_id][elections] for node_id, node in nodes.items()] == [led_count, led_count]
    assert all_of(nodes, "kafka_controller_controllerstats_uncleanleaderelections_total") == [0, 0]

    killed.start()
    until(lambda: sum(all_of(nodes, f"{MANAGER}_isrexpands_total")) >= PARTITIONS, "it is in the ISRs again")
    until(lambda: all_of(nodes, f"{CONTROLLER}_activebrokercount") == [3, 3], "it is active again")
