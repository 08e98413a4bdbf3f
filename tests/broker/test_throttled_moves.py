"""Kafka's own tool moves replicas of a real cluster under a throttle, raises it, and takes it away (KIP-73)."""

from __future__ import annotations

import json
import os
from pathlib import Path

from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.broker.test_cluster_metrics import scrape
from tests.clients.adapters import ConfluentKafka
from tests.support.cluster import BARNABAS, BROKER_ONLY, Cluster, free_ports
from tests.support.kafka import java_tool
from tests.support.messages import Message

TOPIC, BROKER = 2, 4
DYNAMIC_BROKER, OF_TOPIC = 2, 1
TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
SIZE_BYTES = 4_000_000
SLOW = 100_000  # bytes a second: the move would take 40 s
FAST = 1_000_000_000


def throttles(cluster: Cluster, node_id: int) -> dict[str, tuple[str, int]]:
    """What DescribeConfigs says of throttles, of the topic and this broker: the values and where they are from."""
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in ((TOPIC, "a"), (BROKER, str(node_id)))]
    answer = cluster.ask_node(node_id, DescribeConfigsRequest(resources=resources), 4)
    return {
        config.name: (config.value, config.config_source)
        for result in answer.results
        for config in result.configs
        if "throttled" in config.name and config.value
    }


def test_the_reassignment_tool_throttles_a_move_and_takes_the_throttle_away(tmp_path: Path) -> None:
    settings = {
        number: {"barnabas.metrics.listener": f"127.0.0.1:{port}", **({} if number == 1 else {"process.roles": BROKER_ONLY})}
        for number, port in zip((1, 2, 3), free_ports(3), strict=True)
    }
    with Cluster(tmp_path, [BARNABAS] * 3, node_settings=settings) as cluster:
        cluster.create_topic("a", replication_factor=2)
        before = cluster.partition("a").replica_nodes
        (new,) = set(cluster.brokers) - set(before)
        ConfluentKafka().produce(cluster.nodes[1], "a", [Message(0, None, os.urandom(40_000)) for _ in range(SIZE_BYTES // 40_000)])
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [before[1], new]}]}))

        def reassign(*arguments: str) -> str:
            result = java_tool(TOOL, "--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan), *arguments)
            assert result.returncode == 0, result.stdout + result.stderr
            return result.stdout

        assert "Successfully started partition reassignment for a-0" in reassign("--execute", "--throttle", str(SLOW))

        assert cluster.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics != []
        leaders = ",".join(f"0:{node_id}" for node_id in sorted(before))
        expected = {
            "leader.replication.throttled.replicas": (leaders, OF_TOPIC),
            "follower.replication.throttled.replicas": (f"0:{new}", OF_TOPIC),
            "leader.replication.throttled.rate": (str(SLOW), DYNAMIC_BROKER),
            "follower.replication.throttled.rate": (str(SLOW), DYNAMIC_BROKER),
        }
        for node_id in cluster.brokers:
            cluster.wait_for(lambda node_id=node_id: throttles(cluster, node_id) == expected, "the throttles")  # type: ignore[misc]
        cluster.wait_for(lambda: scrape(cluster)[new]["kafka_server_followerreplication_byte_rate"] > 0, "the follower to fetch")
        leader_id = cluster.partition("a").leader_id
        cluster.wait_for(lambda: scrape(cluster)[leader_id]["kafka_server_leaderreplication_byte_rate"] > 0, "the leader to count")

        reassign("--execute", "--additional", "--throttle", str(FAST))
        cluster.wait_for(lambda: cluster.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics == [], "the end of the move")
        verified = reassign("--verify")

        assert "Reassignment of partition a-0 is completed." in verified
        controller = cluster.nodes[cluster.controller_id()]
        assert controller.lines_with(f"reassignment of a-0 begins: adding [{new}], removing [{before[0]}]")
        assert controller.lines_with("reassignment of a-0 is complete")
        assert "Clearing broker-level throttles on brokers" in verified
        assert "Clearing topic-level throttles on topic" in verified
        for node_id in cluster.brokers:
            cluster.wait_for(lambda node_id=node_id: throttles(cluster, node_id) == {}, "the throttles to be gone")  # type: ignore[misc]
