"""KIP-966 by real processes: who left the ISR with every committed record may lead, who may have lost some of them may not."""

from __future__ import annotations

from pathlib import Path

from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.cluster import BARNABAS, BROKER_ONLY, CONTROLLER_ONLY, Cluster

ROLES = {1: {"process.roles": CONTROLLER_ONLY}, 2: {"process.roles": BROKER_ONLY}, 3: {"process.roles": BROKER_ONLY}}


def describe(cluster: Cluster) -> DescribeTopicPartitionsResponsePartition:
    answer = cluster.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")]), 0)
    partition: DescribeTopicPartitionsResponsePartition = answer.topics[0].partitions[0]
    return partition


def test_after_a_clean_stop_a_replica_leads_and_after_a_crash_it_does_not(tmp_path: Path) -> None:
    with Cluster(tmp_path, [BARNABAS] * 3, settings={"min.insync.replicas": "2"}, node_settings=ROLES) as cluster:
        update = FeatureUpdateKey(feature="eligible.leader.replicas.version", max_version_level=1)
        assert cluster.ask(UpdateFeaturesRequest(feature_updates=[update]), 1).error_code == ErrorCode.NONE
        cluster.create_topic("a", replication_factor=2)
        crashed = describe(cluster).leader_id
        stopped = 5 - crashed

        cluster.stop(stopped)
        cluster.wait_for(lambda: describe(cluster).isr_nodes == [crashed], "the stopped one to leave the ISR")
        alone = describe(cluster)
        assert (alone.leader_id, alone.eligible_leader_replicas) == (crashed, [stopped])
        cluster.kill(crashed)
        cluster.start(stopped)
        cluster.wait_for(lambda: describe(cluster).leader_id == stopped, "the one that was stopped cleanly to lead")
        led = describe(cluster)
        cluster.start(crashed)
        cluster.wait_in_sync("a")

        # The crashed one was eligible until it came back and could not tell that it had stopped cleanly.
        assert (led.isr_nodes, led.eligible_leader_replicas) == ([stopped], [crashed])
        assert describe(cluster).leader_id == stopped
        assert not describe(cluster).eligible_leader_replicas
