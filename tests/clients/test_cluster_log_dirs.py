"""Kafka's tool for log directories against three brokers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.java_host import JavaHost


def test_log_dirs_command_describes_the_directories_of_every_broker(tmp_path: Path, java_host: JavaHost) -> None:
    two = {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    with Cluster(tmp_path, node_settings={2: two}) as cluster:
        cluster.create_topic("t", 4)

        told = java_host.tool("LogDirsCommand", "--bootstrap-server", cluster.bootstrap, "--describe", "--topic-list", "t").lines

        brokers = {each["broker"]: each["logDirs"] for each in json.loads(told[-1])["brokers"]}
        assert {node_id: len(log_dirs) for node_id, log_dirs in brokers.items()} == {1: 1, 2: 2, 3: 1}
        assert {log_dir["logDir"] for log_dir in brokers[2]} == {str(tmp_path / "a"), str(tmp_path / "b")}
        for log_dirs in brokers.values():
            replicas = [each["partition"] for log_dir in log_dirs for each in log_dir["partitions"]]
            assert sorted(replicas) == [f"t-{index}" for index in range(4)]
            assert {log_dir["error"] for log_dir in log_dirs} == {None}
