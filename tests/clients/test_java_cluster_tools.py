"""Kafka's tools on a cluster of three: what is amiss while a node is down, elections, moves, endpoints, comparisons of replicas.

One cluster for all: a test leaves it whole, with every node in every ISR, and uses topics of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.clients.adapters import ConfluentKafka
from tests.support.cluster import BARNABAS, HOST, Cluster
from tests.support.java_host import TOOLS, JavaHost
from tests.support.kafka import start_java_tool
from tests.support.messages import Message
from tests.support.process import LineReader

ELECT, MOVE, TOPICS = "LeaderElectionCommand", "reassign.ReassignPartitionsCommand", "TopicCommand"
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "20000",  # longer than a test has a node paused
    "offsets.topic.num.partitions": "1",
}
TOOL_TIMEOUT_S = 60.0
BEGINNING = "Topic: amiss-"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    kind = os.environ.get("BARNABAS_TEST_SERVER", BARNABAS)
    with Cluster(tmp_path_factory.mktemp("tools"), [kind] * 3, settings=SETTINGS) as cluster:
        yield cluster


class Tools:
    """The tools, with the address of the nodes that run."""

    def __init__(self, java_host: JavaHost, cluster: Cluster) -> None:
        self._java_host = java_host
        self._cluster = cluster

    def __call__(self, tool: str, *words: str, expected_status: int = 0) -> list[str]:
        """What it prints, line by line, without those that are empty."""
        return self._java_host.tool(tool, *words, *self._brokers(), expected_status=expected_status).lines

    def of_controllers(self, tool: str, *words: str) -> list[str]:
        """The same of a tool that asks controllers."""
        return self._java_host.tool(tool, *words, *controllers(self._cluster)).lines

    def behind_the_address(self, tool: str, *words: str) -> list[str]:
        """The same of a tool whose subcommand comes after the options of all."""
        return self._java_host.tool(tool, *self._brokers(), *words).lines

    def create(self, topic: str, assignment: str, *configs: str) -> None:
        """A topic with these replicas ("1:2:3,2:3:1"), of which the first of each partition leads."""
        words = [word for config in configs for word in ("--config", config)]
        assert self(TOPICS, "--create", "--topic", topic, "--replica-assignment", assignment, *words) == [f"Created topic {topic}."]
        self._cluster.wait_in_sync(topic)

    def _brokers(self) -> tuple[str, str]:
        return "--bootstrap-server", ",".join(self._cluster.nodes[node_id].bootstrap for node_id in self._cluster.running)


@pytest.fixture
def tools(java_host: JavaHost, cluster: Cluster) -> Iterator[Tools]:
    yield Tools(java_host, cluster)
    cluster.wait_in_sync()


@contextlib.contextmanager
def without_node(cluster: Cluster, node_id: int, topic: str) -> Iterator[None]:
    """While it is down; from when the controller has taken it out of the topic's ISRs."""
    cluster.kill(node_id)
    try:
        cluster.wait_for(lambda: node_id not in isr(cluster, topic), f"node {node_id} is out of the ISR")
        yield
    finally:
        cluster.start(node_id)


@contextlib.contextmanager
def paused(cluster: Cluster, node_id: int) -> Iterator[None]:
    cluster.pause(node_id)
    try:
        yield
    finally:
        cluster.resume(node_id)


def controllers(cluster: Cluster) -> tuple[str, str]:
    return "--bootstrap-controller", ",".join(f"{HOST}:{port}" for port in cluster.controller_ports.values())


def isr(cluster: Cluster, topic: str) -> set[int]:
    """The replicas that are in the ISR of any partition with more than one."""
    (answer,) = cluster.metadata(topic).topics
    return {node_id for partition in answer.partitions if len(partition.replica_nodes) > 1 for node_id in partition.isr_nodes}


def leader(cluster: Cluster, topic: str, partition: int = 0) -> int:
    return cluster.partition(topic, partition).leader_id


def wait_without_leader(cluster: Cluster, topic: str, epoch_before: int) -> None:
    """Until the controller has taken the leader from it. Metadata may name none before: a broker leaves out one whose connection ended."""

    def has_none() -> bool:
        partition = cluster.partition(topic)
        return partition.leader_id == -1 and partition.leader_epoch > epoch_before

    cluster.wait_for(has_none, f"{topic} has no leader")


def test_topics_are_described_by_what_is_amiss_while_a_node_is_down(tools: Tools, cluster: Cluster) -> None:
    """A partition without a leader is under its min ISR, whatever its ISR; one with as few replicas as that is at it."""
    tools.create("amiss-even", "1:2:3,2:3:1,3:1:2", "min.insync.replicas=2")
    tools.create("amiss-strict", "1:2:3", "min.insync.replicas=3")
    tools.create("amiss-alone", "3,1", "min.insync.replicas=1")

    def described(*what: str) -> list[str]:
        lines = [line.replace("\t", " ").strip() for line in tools(TOPICS, "--describe", *what)]
        return [line for line in lines if line.startswith(BEGINNING) and "PartitionCount" not in line]

    assert described("--under-replicated-partitions") == []
    epoch = cluster.partition("amiss-alone").leader_epoch
    with without_node(cluster, 3, "amiss-even"):
        wait_without_leader(cluster, "amiss-alone", epoch)
        told = {what: described(f"--{what}-partitions") for what in ("under-replicated", "under-min-isr", "at-min-isr", "unavailable")}
        every = described("--topic", "amiss-.*")

    alone, other = [f"{BEGINNING}alone Partition: {number} Leader: {leads} Replicas: {node} Isr: {node} Elr:  LastKnownElr:"
                    for number, leads, node in ((0, "none", 3), (1, 1, 1))]  # fmt: skip
    even = [
        f"{BEGINNING}even Partition: 0 Leader: 1 Replicas: 1,2,3 Isr: 1,2 Elr:  LastKnownElr:",
        f"{BEGINNING}even Partition: 1 Leader: 2 Replicas: 2,3,1 Isr: 2,1 Elr:  LastKnownElr:",
        f"{BEGINNING}even Partition: 2 Leader: 1 Replicas: 3,1,2 Isr: 1,2 Elr:  LastKnownElr:",
    ]
    strict = f"{BEGINNING}strict Partition: 0 Leader: 1 Replicas: 1,2,3 Isr: 1,2 Elr:  LastKnownElr:"
    assert sorted(every) == [alone, other, *even, strict]
    assert {what: sorted(lines) for what, lines in told.items()} == {
        "under-replicated": [*even, strict],
        "under-min-isr": [alone, strict],
        "at-min-isr": [alone, other, *even],
        "unavailable": [alone],
    }


def test_preferred_leaders_are_elected_and_an_unclean_one_where_none_is_left(tools: Tools, cluster: Cluster, tmp_path: Path) -> None:
    tools.create("elect-even", "1:2:3,3:1:2")
    tools.create("elect-lost", "3:2", "min.insync.replicas=1")
    chosen = tmp_path / "elections.json"
    chosen.write_text(json.dumps({"partitions": [{"topic": "elect-even", "partition": number} for number in (0, 1)]}))
    lost = ("--topic", "elect-lost", "--partition", "0")

    cluster.stop(2)
    cluster.wait_for(lambda: isr(cluster, "elect-lost") == {3}, "the ISR is node 3 alone")
    epoch = cluster.partition("elect-lost").leader_epoch
    cluster.kill(3)
    cluster.start(2)
    wait_without_leader(cluster, "elect-lost", epoch)
    refused = tools(ELECT, "--election-type", "preferred", *lost, expected_status=1)
    unclean = [tools(ELECT, "--election-type", "unclean", *lost) for _ in range(2)]
    cluster.wait_for(lambda: leader(cluster, "elect-lost") == 2, "node 2 leads")
    cluster.start(3)
    cluster.wait_in_sync()
    before = leader(cluster, "elect-even", 1)
    preferred = tools(ELECT, "--election-type", "preferred", "--path-to-json-file", str(chosen))
    cluster.wait_for(lambda: leader(cluster, "elect-even", 1) == 3, "node 3 leads")

    reason = "org.apache.kafka.common.errors.PreferredLeaderNotAvailableException: The preferred leader was not available."
    assert refused == [f"Error completing leader election (PREFERRED) for partition: elect-lost-0: {reason}"]
    assert unclean == [
        ["Successfully completed leader election (UNCLEAN) for partitions elect-lost-0"],
        ["Valid replica already elected for partitions elect-lost-0"],
    ]
    assert before == 1
    assert preferred == [
        "Successfully completed leader election (PREFERRED) for partitions elect-even-1",
        "Valid replica already elected for partitions elect-even-0",
    ]


def test_partitions_are_moved_as_the_tool_proposes(tools: Tools, cluster: Cluster, tmp_path: Path) -> None:
    tools.create("move", "1:2,2:1")
    ConfluentKafka().produce(cluster.nodes[1], "move", [Message(0, None, b"x" * 1000)] * 100)
    wanted, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": "move"}]}))

    generated = tools(MOVE, "--generate", "--topics-to-move-json-file", str(wanted), "--broker-list", "2,3")
    plan.write_text(generated[3])
    executed = tools(MOVE, "--execute", "--reassignment-json-file", str(plan))
    cluster.wait_for(lambda: set(cluster.partition("move").replica_nodes) == {2, 3}, "the replicas are on nodes 2 and 3")
    cluster.wait_in_sync("move")
    verified = tools(MOVE, "--verify", "--reassignment-json-file", str(plan))

    directories = {node_id: str(node.data_dir) for node_id, node in cluster.nodes.items()}
    before = [{"topic": "move", "partition": number, "replicas": nodes, "log_dirs": [directories[node_id] for node_id in nodes]}
              for number, nodes in ((0, [1, 2]), (1, [2, 1]))]  # fmt: skip
    assert generated[::2] == ["Current partition replica assignment", "Proposed partition reassignment configuration"]
    assert json.loads(generated[1])["partitions"] == json.loads(executed[1])["partitions"] == before
    assert executed[2:] == [
        "Save this to use as the --reassignment-json-file option during rollback",
        "Successfully started partition reassignments for move-0,move-1",
    ]
    assert verified == [
        "Status of partition reassignment:",
        "Reassignment of partition move-0 is completed.",
        "Reassignment of partition move-1 is completed.",
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic move",
    ]


def test_a_move_to_more_replicas_may_be_disallowed(tools: Tools, cluster: Cluster, tmp_path: Path) -> None:
    """The tool asks with version 1 of AlterPartitionReassignments (KIP-860)."""
    tools.create("as-many", "1:2,2:3")
    moves = [(0, [1, 2, 3]), (1, [3, 1])]
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "as-many", "partition": index, "replicas": nodes} for index, nodes in moves]})
    )

    told = tools(MOVE, "--execute", "--reassignment-json-file", str(plan), "--disallow-replication-factor-change", expected_status=1)
    cluster.wait_for(lambda: cluster.partition("as-many", 1).replica_nodes == [3, 1], "partition 1 is where it shall be")

    assert told[3:] == [
        "Error reassigning partition(s):",
        "as-many-0: The replication factor is changed from 2 to 3",
    ]
    assert cluster.partition("as-many", 0).replica_nodes == [1, 2]


def test_a_move_that_waits_is_listed_and_cancelled(cluster: Cluster, tools: Tools, tmp_path: Path) -> None:
    """It waits for a broker that stands still. The tool asks controllers: of brokers it might ask that one, and would wait for it."""
    tools.create("waiting", "1:2")
    cluster.add_node(4)
    cluster.start(4)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "waiting", "partition": 0, "replicas": [1, 4]}]}))

    with paused(cluster, 4):
        move = ReassignablePartition(partition_index=0, replicas=[1, 4])
        cluster.ask(AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="waiting", partitions=[move])]), 0)
        listed = tools.of_controllers(MOVE, "--list")
        cancelled = tools.of_controllers(MOVE, "--cancel", "--reassignment-json-file", str(plan), "--preserve-throttles")
        after = tools.of_controllers(MOVE, "--list")
    cluster.stop(4)
    tools.of_controllers("ClusterTool", "unregister", "--id", "4")
    del cluster.nodes[4]

    assert listed == ["Current partition reassignments:", "waiting-0: replicas: 1,4,2. adding: 4. removing: 2."]
    assert cancelled == [
        "Successfully cancelled partition reassignment for: waiting-0",
        "None of the specified partition moves are active.",  # those between log directories
    ]
    assert after == ["No partition reassignments found."]
    cluster.wait_for(lambda: cluster.partition("waiting").replica_nodes == [1, 2], "the replicas are where they were")


def test_replicas_are_compared(cluster: Cluster, tools: Tools) -> None:
    """ReplicaVerificationTool reads every replica as the debugging consumer -2, also from followers, until it is ended."""
    tools.create("verified", "1:2:3,2:3:1")
    ConfluentKafka().produce(cluster.nodes[1], "verified", [Message(number % 2, None, b"x" * 1000) for number in range(200)])
    words = ("--broker-list", cluster.bootstrap, "--topics-include", "verified", "--report-interval-ms", "200", "--max-wait-ms", "100")

    process = start_java_tool(f"{TOOLS}.ReplicaVerificationTool", *words)
    try:
        reader = LineReader(process)
        said = reader.wait_for(3, containing="max lag is", timeout_s=TOOL_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()

    told = [re.sub(r"^.*: max", "max", line) for line in said]
    assert told[-1] in {f"max lag is 0 for partition verified-{number} at offset 100 among 2 partitions" for number in (0, 1)}
    assert not [line for line in reader.lines if "different" in line]


def test_endpoints_are_listed_and_a_dead_broker_is_unregistered(cluster: Cluster, tools: Tools, java_host: JavaHost) -> None:
    """A broker that comes back registers again."""
    tools.create("unregister", "3:1:2")
    endpoints = ("ClusterTool", "list-endpoints")

    def row(node_id: int, state: str) -> list[str]:
        return [str(node_id), HOST, str(cluster.nodes[node_id].port), "null", state, "broker"]

    with without_node(cluster, 3, "unregister"):
        known = [line.split() for line in tools(*endpoints, "--include-fenced-brokers")]
        unknown = java_host.tool("ClusterTool", "unregister", "--id", "7", *controllers(cluster), expected_status=1)
        gone = tools("ClusterTool", "unregister", "--id", "3")
        left = [line.split() for line in tools(*endpoints, "--include-fenced-brokers")]
    cluster.wait_in_sync()
    again = [line.split() for line in tools(*endpoints)]

    assert tools("ClusterTool", "cluster-id") == [f"Cluster ID: {cluster.cluster_id}"]
    assert known == [["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"], row(1, "unfenced"), row(2, "unfenced"), row(3, "fenced")]
    assert gone == ["Broker 3 is no longer registered."]
    assert "BrokerIdNotRegisteredException: Broker ID 7 is not currently registered" in unknown.stderr
    assert left == known[:3]
    assert again == [*known[:3], row(3, "unfenced")]
    assert [line.split() for line in tools.of_controllers(*endpoints)] == [
        ["ID", "HOST", "PORT", "RACK", "ENDPOINT_TYPE"],
        *([str(node_id), HOST, str(port), "null", "controller"] for node_id, port in cluster.controller_ports.items()),
    ]


def test_offsets_and_versions_come_from_every_broker(cluster: Cluster, tools: Tools) -> None:
    tools.create("everywhere", "1:2:3,2:3:1,3:1:2")
    ConfluentKafka().produce(cluster.nodes[1], "everywhere", [Message(number % 3, None, b"x") for number in range(7)])

    offsets = tools("GetOffsetShell", "--topic", "everywhere")
    versions = tools("BrokerApiVersionsCommand")
    quorum = tools.behind_the_address("MetadataQuorumCommand", "describe", "--replication", "--human-readable")

    assert offsets == ["everywhere:0:3", "everywhere:1:2", "everywhere:2:2"]
    told = [line.split(" -> ")[0] for line in versions if " -> " in line]
    assert sorted(told) == sorted(f"{node.bootstrap} (id: {node_id} rack: null isFenced: false)" for node_id, node in cluster.nodes.items())
    assert quorum[0].split() == ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"]
    states = {int(line.split()[0]): line.split()[-1] for line in quorum[1:] if not line.rstrip().endswith("Observer")}
    assert states == {node_id: "Leader" if node_id == cluster.controller_id() else "Follower" for node_id in cluster.nodes}
