"""Kafka's own tools administer our quorum: MetadataQuorumCommand, FeatureCommand, DumpLogSegments; by brokers and by controllers."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.uuids import uuid_to_text
from storage.meta_properties import read_meta_properties
from tests.support.java_host import JavaHost
from tests.support.kafka import JVM_FLAGS, shell_class_path
from tests.support.quorum import DynamicQuorum, QuorumNode, dynamic_quorum, until

TOOL = "MetadataQuorumCommand"
NO_FILE = "/no-such-file"
"""A question whose answer ends the one before it."""


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamicQuorum]:
    roles = dict.fromkeys((1, 2, 3), "broker,controller")
    # Of metadata.log.max.record.bytes.between.snapshots the least: a snapshot soon.
    settings = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    with dynamic_quorum(tmp_path_factory.mktemp("quorum"), roles, settings) as made:
        yield made


def by_broker(quorum: DynamicQuorum) -> tuple[str, str]:
    return ("--bootstrap-server", ",".join(node.bootstrap for node in quorum.nodes.values() if "broker" in node.settings["process.roles"]))


def by_controller(quorum: DynamicQuorum) -> tuple[str, str]:
    return ("--bootstrap-controller", quorum.bootstrap)


def status(java_host: JavaHost, *where: str) -> dict[str, str]:
    lines = java_host.tool(TOOL, *where, "describe", "--status").lines
    return dict(re.split(r":\s+", line, maxsplit=1) for line in lines)


def test_the_quorum_is_described_by_brokers_and_by_controllers(java_host: JavaHost, quorum: DynamicQuorum) -> None:
    told = [status(java_host, *where) for where in (by_broker(quorum), by_controller(quorum))]

    leader_id = quorum.describe().leader_id
    directory_ids = {quorum.directory_id(node_id) for node_id in (1, 2, 3)}
    for each in told:
        assert int(each["LeaderId"]) == leader_id and int(each["HighWatermark"]) > 0
        assert set(re.findall(r'"directoryId": "([^"]+)"', each["CurrentVoters"])) == directory_ids
    replicas = java_host.tool(TOOL, *by_broker(quorum), "describe", "--replication").lines[1:]
    assert sorted((line.split()[0], line.split()[-1]) for line in replicas) == sorted(
        (str(node_id), "Leader" if node_id == leader_id else "Follower") for node_id in (1, 2, 3)
    )


def test_features_are_described_upgraded_and_downgraded(java_host: JavaHost, quorum: DynamicQuorum) -> None:
    def finalized() -> dict[str, str]:
        lines = java_host.tool("FeatureCommand", *by_controller(quorum), "describe").lines
        found = (re.search(r"Feature: (\S+).*FinalizedVersionLevel: (\S+)", line) for line in lines)
        return {each[1]: each[2] for each in found if each is not None}

    before = finalized()
    upgraded = java_host.tool("FeatureCommand", *by_broker(quorum), "upgrade", "--feature", "metadata.version=29").stdout
    java_host.tool("FeatureCommand", *by_broker(quorum), "upgrade", "--feature", "metadata.version=30", "--dry-run")
    java_host.tool("FeatureCommand", *by_broker(quorum), "upgrade", "--feature", "share.version=1", expected_status=1)
    between = finalized()
    java_host.tool("FeatureCommand", *by_controller(quorum), "downgrade", "--feature", "metadata.version=25")

    assert before == {
        "metadata.version": "4.0-IV3",
        "kraft.version": "1",
        "eligible.leader.replicas.version": "0",
        "group.version": "1",
        "transaction.version": "2",
    }
    assert "metadata.version was upgraded to 29." in upgraded
    assert between["metadata.version"] == "4.2-IV1"
    assert finalized() == before


def add_controller(java_host: JavaHost, quorum: DynamicQuorum, node: QuorumNode) -> None:
    java_host.tool(TOOL, *by_broker(quorum), "--command-config", str(node.write_properties()), "add-controller")


def test_a_controller_is_added_and_another_removed(java_host: JavaHost, quorum: DynamicQuorum) -> None:
    newcomer = quorum.add(4, "controller")
    newcomer.start()

    def caught_up() -> set[int]:
        return {each.replica_id for each in quorum.describe().observers if each.last_caught_up_timestamp > 0}

    until(lambda: 4 in caught_up(), "the newcomer has caught up, without which it is refused")
    leader_id = quorum.describe().leader_id

    add_controller(java_host, quorum, newcomer)
    added = quorum.voters()
    gone = ("--controller-id", str(leader_id), "--controller-directory-id", quorum.directory_id(leader_id))
    java_host.tool(TOOL, *by_controller(quorum), "remove-controller", *gone)

    assert added == {1, 2, 3, 4}
    until(lambda: quorum.describe().leader_id not in (-1, leader_id), "another leads")
    until(lambda: quorum.voters() == {1, 2, 3, 4} - {leader_id}, "it has left the voters")
    identity = read_meta_properties(newcomer.data_dir)
    assert identity is not None and identity.directory_id is not None
    assert uuid_to_text(identity.directory_id) in status(java_host, *by_broker(quorum))["CurrentVoters"]


def test_the_log_and_its_snapshots_can_be_dumped(java_host: JavaHost, quorum: DynamicQuorum) -> None:
    directory = quorum.nodes[1].data_dir / "__cluster_metadata-0"
    files = sorted([*directory.glob("*.log"), *directory.glob("*.checkpoint")])

    told = java_host.tool("DumpLogSegments", "--cluster-metadata-decoder", "--files", ",".join(map(str, files))).stdout

    types = set(re.findall(r'"type":"(\w+)"', told))
    assert {"REGISTER_BROKER_RECORD", "FEATURE_LEVEL_RECORD", "REGISTER_CONTROLLER_RECORD"} <= types
    assert "KRaftVoters" in told and "isvalid: false" not in told


def test_the_metadata_shell_reads_a_snapshot(quorum: DynamicQuorum, tmp_path: Path) -> None:
    class_path = shell_class_path()
    directory = quorum.nodes[1].data_dir / "__cluster_metadata-0"
    until(lambda: create_topics(quorum, "first"), "each of the three brokers has registered")
    registered = quorum.describe().high_watermark
    until(lambda: create_topics(quorum, "second"), "there is enough for another snapshot")
    until(lambda: int(max(path.name for path in directory.glob("*.checkpoint"))[:20]) >= registered, "a snapshot has all brokers")
    # A copy: the shell locks the log directory, which its node has locked.
    snapshot = shutil.copy(max(directory.glob("*.checkpoint")), tmp_path)
    command = ["java", *JVM_FLAGS, "-cp", class_path, "org.apache.kafka.shell.MetadataShell", "--snapshot", str(snapshot)]

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as shell:
        try:
            # It takes questions before it has read everything, and answers them as of then.
            until(lambda: {"1", "2", "3"} <= ask_shell(shell, "ls /image/cluster/brokers"), "the shell shows the brokers")
            until(lambda: "Optional[4.0-IV3]" in ask_shell(shell, "cat /image/features/metadataVersion"), "the shell shows the features")
        finally:
            shell.kill()


def create_topics(quorum: DynamicQuorum, name: str) -> bool:
    """Whether they are there; it takes three brokers."""
    topics = [CreatableTopic(name=f"{name}-for-a-snapshot-{number}", num_partitions=1, replication_factor=3) for number in range(20)]
    answer = quorum.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
    return {each.error_code for each in answer.topics} <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}


def ask_shell(shell: subprocess.Popen[str], question: str) -> set[str]:
    """The lines of the answer."""
    assert shell.stdin is not None and shell.stdout is not None
    shell.stdin.write(f"{question}\ncat {NO_FILE}\n")
    shell.stdin.flush()
    answer: set[str] = set()
    for line in shell.stdout:
        if NO_FILE in line:
            break
        answer.add(line.strip().removeprefix(">> "))
    return answer
