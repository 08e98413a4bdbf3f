"""The voters of controller.quorum.voters move into the log by UpdateFeatures, and stay there over restarts (KIP-853)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponsePartitionData,
)
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from storage.meta_properties import read_meta_properties
from tests.support.cluster import Cluster
from tests.support.quorum import until
from tests.support.wire import WireClient

NODE_IDS = (1, 2, 3)


def ask(cluster: Cluster, request: Any, version: int) -> Any:
    node = cluster.nodes[1]
    with WireClient(node.host, node.port) as client:
        return client.request(request, version)


def describe(cluster: Cluster) -> DescribeQuorumResponsePartitionData:
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    described: DescribeQuorumResponsePartitionData = ask(cluster, DescribeQuorumRequest(topics=[topic]), 2).topics[0].partitions[0]
    return described


def voters(cluster: Cluster) -> dict[int, bytes]:
    return {voter.replica_id: voter.replica_directory_id for voter in describe(cluster).current_voters}


def directory_id(cluster: Cluster, node_id: int) -> bytes | None:
    identity = read_meta_properties(cluster.nodes[node_id].data_dir)
    return None if identity is None else identity.directory_id


def test_static_voters_move_into_the_log(tmp_path: Path) -> None:
    update = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="kraft.version", max_version_level=1)])
    with Cluster(tmp_path) as cluster:
        # Each voter first tells the leader its directory (UpdateRaftVoter).
        until(lambda: ask(cluster, update, 2).error_code == 0, "all voters support it")
        with_directories = {node_id: directory_id(cluster, node_id) for node_id in NODE_IDS}
        until(lambda: voters(cluster) == with_directories, "the log names the voters")
        epoch = describe(cluster).leader_epoch

        for node in cluster.nodes.values():
            node.kill()
        with ThreadPoolExecutor(len(NODE_IDS)) as threads:
            list(threads.map(lambda node: node.start(), cluster.nodes.values()))

        until(lambda: describe(cluster).leader_epoch > epoch, "a leader of a later epoch")
        until(lambda: voters(cluster) == with_directories, "the voters are those of the log")
        states = [
            json.loads((cluster.nodes[node_id].data_dir / "__cluster_metadata-0" / "quorum-state").read_text()) for node_id in NODE_IDS
        ]
        assert {state["data_version"] for state in states} == {1}
