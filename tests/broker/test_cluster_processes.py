"""Three processes of `barnabas serve` are one cluster: topics made through any are on all, a killed controller is replaced."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.broker import BrokerProcess
from tests.support.process import free_port
from tests.support.wire import WireClient

CLUSTER_ID = "3Db5QLSqSZieL3rJBUUegA"
WAIT_MAX_S = 60.0
LED_EPOCH = re.compile(r"leading epoch (\d+) of the metadata quorum")


def make_node(directory: Path, node_id: int, voters: str, port: int) -> BrokerProcess:
    """A formatted node that was not started yet."""
    settings = {
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "barnabas.auto.format": "false",
    }
    node = BrokerProcess(directory / f"node{node_id}", settings)
    node.settings["listeners"] = f"PLAINTEXT://{node.host}:{node.port},CONTROLLER://{node.host}:{port}"
    command = [*node.command()]
    command[command.index("serve")] = "format"
    outcome = subprocess.run(
        [*command, "-t", CLUSTER_ID], env=node.environment(), cwd=Path(__file__).resolve().parents[2], capture_output=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    return node


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[int, BrokerProcess]]:
    ports = {node_id: free_port() for node_id in (1, 2, 3)}
    voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
    made = {node_id: make_node(tmp_path, node_id, voters, port) for node_id, port in ports.items()}
    yield made
    for node in made.values():
        if node.is_running:
            node.kill()


def start(nodes: dict[int, BrokerProcess]) -> None:
    """Together: none is ready before most of them are there."""
    with ThreadPoolExecutor(len(nodes)) as threads:
        list(threads.map(BrokerProcess.start, nodes.values()))


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_MAX_S
    while not is_so():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def topics_of(node: BrokerProcess) -> set[str]:
    with WireClient(node.host, node.port) as client:
        return {topic.name for topic in client.request(MetadataRequest(topics=None), 12).topics}


def create(node: BrokerProcess, name: str) -> bool:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    with WireClient(node.host, node.port) as client:
        response = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 5)
    return response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


def active_controller(nodes: dict[int, BrokerProcess]) -> int:
    """The node that began to lead the newest epoch."""
    led = {node_id: [int(epoch) for epoch in LED_EPOCH.findall(node.log_path.read_text())] for node_id, node in nodes.items()}
    return max(nodes, key=lambda node_id: max(led[node_id], default=0))


def test_three_processes_are_one_cluster(nodes: dict[int, BrokerProcess]) -> None:
    start(nodes)
    for node_id, node in nodes.items():
        until(lambda node=node, node_id=node_id: create(node, f"by-{node_id}"), f"node {node_id} creates")  # type: ignore[misc]
    for node_id, node in nodes.items():
        until(lambda node=node: topics_of(node) == {"by-1", "by-2", "by-3"}, f"node {node_id} shows")  # type: ignore[misc]

    killed = nodes.pop(active_controller(nodes))
    killed.kill()
    for node_id, node in nodes.items():
        until(lambda node=node, node_id=node_id: create(node, f"later-{node_id}"), f"node {node_id} creates")  # type: ignore[misc]
    killed.start()

    everything = {"by-1", "by-2", "by-3", *(f"later-{node_id}" for node_id in nodes)}
    until(lambda: topics_of(killed) == everything, "the killed one shows what was created without it")
    assert [node.stop() for node in (killed, *nodes.values())] == [0, 0, 0]


def test_a_node_that_waits_for_its_quorum_stops_when_it_is_asked_to(nodes: dict[int, BrokerProcess]) -> None:
    node = nodes[1]
    process = subprocess.Popen(
        node.command(), env=node.environment(), cwd=Path(__file__).resolve().parents[2], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        port = int(node.settings["listeners"].rpartition(":")[2])
        until(lambda: listens(port), "the controller listener is open")

        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=WAIT_MAX_S)
    finally:
        process.kill()

    assert process.returncode == 0
    assert b"stopped before it was ready" in output and b"Traceback" not in output


def test_a_start_without_a_quorum_ends_when_its_time_is_over(nodes: dict[int, BrokerProcess]) -> None:
    node = nodes[1]
    command = [*node.command(), "--override", "server.max.startup.time.ms=300"]

    outcome = subprocess.run(
        command, env=node.environment(), cwd=Path(__file__).resolve().parents[2], capture_output=True, check=False, timeout=WAIT_MAX_S
    )

    assert outcome.returncode == 1
    assert b"the start took too long" in outcome.stderr
