"""Directories that one side's format command made, with the options of a cluster, are served by the other."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from kafka.admin import KafkaAdminClient, NewTopic

from broker.cli.main import main
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tests.support.kafka import KafkaServer, java_command
from tests.support.process import free_port
from tests.support.quorum import CLUSTER_ID, DynamicQuorum, QuorumNode, until
from tests.support.wire import WireClient

NOT_HERE = ("group.version", "share.version", "streams.version")
OPTIONS = ("--release-version", "4.3-IV0", *(word for name in NOT_HERE for word in ("--feature", f"{name}=0")))


class NodeFormattedByKafka(QuorumNode):
    def format(self, *options: str) -> None:
        command = java_command(
            "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.write_properties()), *options, *OPTIONS
        )
        subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL)


class FormattedByKafka(DynamicQuorum):
    """Its nodes are ours, their directories were made by Kafka's tool."""

    node_class = NodeFormattedByKafka


def test_three_nodes_and_a_broker_that_kafka_formatted_are_one_cluster(tmp_path: Path) -> None:
    quorum = FormattedByKafka(tmp_path, dict.fromkeys((1, 2, 3), "broker,controller"))
    quorum.add(4, "broker")
    try:
        quorum.start()
        topic = CreatableTopic(name="t", num_partitions=4, replication_factor=3)
        created = quorum.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5).topics[0].error_code
        until(lambda: [each.replica_id for each in quorum.describe().observers] == [4], "the broker observes")
        described = quorum.describe()
    finally:
        quorum.kill()

    assert created == 0
    assert {voter.replica_id: voter.replica_directory_id for voter in described.current_voters} == quorum.directory_ids


class FormattedByUs(KafkaServer):
    """Apache Kafka on a directory that `barnabas format` made."""

    cluster_id = CLUSTER_ID

    def _prepare(self, properties: Path) -> Sequence[str]:
        controller_port = free_port(self.host)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"{self.host}:{controller_port}",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            **self.settings,
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        user = ("--add-scram", "SCRAM-SHA-512=[name=alice,password=alice-secret,iterations=8192]")
        assert main(["format", "-t", self.cluster_id, "-c", str(properties), "--standalone", *user, *OPTIONS]) == 0
        return ()


def test_kafka_serves_what_we_formatted(tmp_path: Path) -> None:
    server = FormattedByUs(tmp_path)
    server.start()
    try:
        admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
        admin.create_topics([NewTopic("t", 1, 1)])
        until(lambda: "t" in admin.list_topics(), "Kafka tells of it")
        admin.close()
        with WireClient(server.host, server.port) as client:
            users = client.request(DescribeUserScramCredentialsRequest(users=None), 0).results
    finally:
        server.kill()

    assert [(user.user, [(info.mechanism, info.iterations) for info in user.credential_infos]) for user in users] == [
        ("alice", [(2, 8192)])
    ]
    assert list((server.data_dir / "__cluster_metadata-0").glob("*.log"))
