"""Kafka's tools for leaders, moves and features, on a node alone: what they print, and with which status they end."""

from __future__ import annotations

import json
from pathlib import Path

from tests.clients.topics import create_topic
from tests.support.java_host import JavaHost
from tests.support.process import ServerProcess

NODE_ID = 1


def test_an_election_is_not_needed_where_the_preferred_replica_leads(server: ServerProcess, java_host: JavaHost, topic_name: str) -> None:
    create_topic(server, topic_name)

    result = java_host.tool(
        "LeaderElectionCommand",
        "--bootstrap-server",
        server.bootstrap,
        "--election-type",
        "preferred",
        "--topic",
        topic_name,
        "--partition",
        "0",
    )

    assert f"Valid replica already elected for partitions {topic_name}-0" in result.stdout


def test_no_moves_are_listed_and_one_to_where_a_replica_is_completes(
    server: ServerProcess, java_host: JavaHost, topic_name: str, tmp_path: Path
) -> None:
    create_topic(server, topic_name)
    tool, bootstrap = "reassign.ReassignPartitionsCommand", ("--bootstrap-server", server.bootstrap)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic_name, "partition": 0, "replicas": [NODE_ID]}]}))

    assert "No partition reassignments found." in java_host.tool(tool, *bootstrap, "--list").stdout
    started = java_host.tool(tool, *bootstrap, "--execute", "--reassignment-json-file", str(plan))
    verified = java_host.tool(tool, *bootstrap, "--verify", "--reassignment-json-file", str(plan))

    assert f"Successfully started partition reassignment for {topic_name}-0" in started.stdout
    assert f"Reassignment of partition {topic_name}-0 is completed." in verified.stdout


def test_features_are_described(server: ServerProcess, java_host: JavaHost) -> None:
    result = java_host.tool("FeatureCommand", "--bootstrap-server", server.bootstrap, "describe")

    features = {line.split()[1] for line in result.stdout.splitlines() if line.startswith("Feature: ")}
    assert {"metadata.version", "kraft.version"} <= features


def test_a_feature_that_is_not_here_is_not_upgraded(server: ServerProcess, java_host: JavaHost) -> None:
    result = java_host.tool(
        "FeatureCommand", "--bootstrap-server", server.bootstrap, "upgrade", "--feature", "share.version=1", expected_status=None
    )

    assert "Could not upgrade share.version to 1." in result.stdout + result.stderr
