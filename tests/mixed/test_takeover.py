"""Two nodes of Apache Kafka 4.3.1 and one of ours are one cluster: each kind in turn is the active controller, leads partitions that the
other follows, and is killed under load.

One scenario on one cluster, for each start of a Kafka node takes seconds. It begins at metadata.version 4.0-IV3 and is lifted to 4.3-IV0
on the way: between brokers the versions of Fetch, ListOffsets and RegisterBrokerRecord follow it, and nothing is negotiated.
"""

from __future__ import annotations

import re
import shutil
import urllib.request
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.faults.cluster_campaign import ClusterCampaign
from tests.support.cluster import BARNABAS, KAFKA, Cluster
from tests.support.kafka import missing_java
from tests.support.process import free_port
from tests.support.requirements import needs

KINDS = (KAFKA, KAFKA, BARNABAS)
KAFKA_IDS, OUR_ID = (1, 2), 3
SETTINGS = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "metadata.log.max.record.bytes.between.snapshots": "1000",
}
# Nodes of Kafka that have just been started grant ours its election before they stand themselves.
ELECTION_TIMEOUT_MS = {KAFKA: "4000", BARNABAS: "300"}
SENDS_PER_SECOND = 100
TRIES_MAX = 3
METADATA_VERSION_4_3 = 30
METADATA_LOG = "__cluster_metadata-0"
FETCHES = re.compile(r'kafka_network_requestmetrics_requests_total\{request="Fetch",version="(\d+)"\}')


def served_fetch_versions(metrics_address: str) -> set[int]:
    """In which versions our process has been asked for records: by the clients of the test below 17, by replicas of the metadata log in the
    newest that both speak, and by followers as metadata.version says."""
    with urllib.request.urlopen(f"http://{metrics_address}/metrics", timeout=10) as answer:
        return {int(version) for version in FETCHES.findall(answer.read().decode())}


def create_through_every_broker(cluster: Cluster, prefix: str) -> None:
    """A topic through each broker, which has to ask the active controller; in each, every node leads a partition and follows two."""
    placed = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[(index + place) % len(KINDS) + 1 for place in range(len(KINDS))])
        for index in range(len(KINDS))
    ]
    for node_id in cluster.brokers:
        topic = CreatableTopic(name=f"{prefix}-{node_id}", num_partitions=-1, replication_factor=-1, assignments=placed)
        answer = cluster.ask_node(node_id, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert [(each.name, each.error_code) for each in answer.topics] == [(topic.name, ErrorCode.NONE)], f"through node {node_id}"
        again = cluster.ask_node(node_id, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    names = [f"{prefix}-{node_id}" for node_id in cluster.brokers]
    cluster.wait_in_sync(*names)
    assert {cluster.partition(name, index).leader_id for name in names for index in range(len(KINDS))} == set(cluster.brokers)


def kill_the_controller(campaign: ClusterCampaign) -> None:
    """Under load, and back again: nothing acked is lost or doubled, and the replicas are equal."""
    window = campaign.run_window(["kill-controller"], seconds=0)
    assert window.anomalies == {}, window


def make_ours_the_controller(cluster: Cluster) -> None:
    """Of a node of each kind that have both lost their leader Kafka's is elected more often: it refuses ours until it stands itself."""
    for _ in range(TRIES_MAX):
        if cluster.controller_id() == OUR_ID:
            return
        cluster.kill(*KAFKA_IDS)
        cluster.start(*KAFKA_IDS)
        cluster.wait_in_sync()
    raise AssertionError("our node is never elected")


def lose_metadata(cluster: Cluster, node_id: int) -> None:
    """Kill a node and start it without its metadata log, when another leads: it has to fetch a snapshot."""
    directory = cluster.nodes[node_id].data_dir / METADATA_LOG
    cluster.kill(node_id)
    cluster.controller_id()
    shutil.rmtree(directory)
    cluster.start(node_id)
    cluster.wait_in_sync()
    first_segment = min(int(path.stem) for path in directory.glob("*.log"))
    assert first_segment > 0, "its log begins behind a snapshot"


@needs(missing_java())
@pytest.mark.timeout(900)
def test_either_kind_takes_over_from_the_other_and_nothing_acked_is_lost(tmp_path: Path) -> None:
    metrics_address = f"127.0.0.1:{free_port()}"
    node_settings = {
        node_id: {"controller.quorum.election.timeout.ms": ELECTION_TIMEOUT_MS[kind]} for node_id, kind in enumerate(KINDS, start=1)
    }
    node_settings[OUR_ID]["barnabas.metrics.listener"] = metrics_address
    cluster = Cluster(tmp_path, KINDS, settings=SETTINGS, node_settings=node_settings)
    try:
        cluster.start(*KAFKA_IDS)
        cluster.start(OUR_ID)
        assert cluster.controller_id() in KAFKA_IDS
        create_through_every_broker(cluster, "of-kafka")
        campaign = ClusterCampaign(
            cluster,
            seed=1,
            pause_s=0,
            has_java=False,
            sends_per_second=SENDS_PER_SECOND,
            topic_config={},
            requests_in_flight=1,  # for the reason that tests/faults/chaos.py gives
        )
        try:
            kill_the_controller(campaign)
            make_ours_the_controller(cluster)
            create_through_every_broker(cluster, "of-ours")
            lose_metadata(cluster, KAFKA_IDS[0])
            assert 17 in served_fetch_versions(metrics_address)

            kill_the_controller(campaign)
            lose_metadata(cluster, OUR_ID)
            assert cluster.controller_id() in KAFKA_IDS
            lift_metadata_version(cluster)
            cluster.restart(OUR_ID)
            create_through_every_broker(cluster, "at-4.3")
            assert {17, 18} & served_fetch_versions(metrics_address) == {18}

            make_ours_the_controller(cluster)
            create_through_every_broker(cluster, "at-4.3-of-ours")
            kill_the_controller(campaign)
            assert campaign.check_all() == {}
        finally:
            campaign.close()
    finally:
        cluster.close()


def lift_metadata_version(cluster: Cluster) -> None:
    update = FeatureUpdateKey(feature="metadata.version", max_version_level=METADATA_VERSION_4_3)
    answer = cluster.ask_node(KAFKA_IDS[0], UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
