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
SENDS_PER_SECOND = 100
METADATA_VERSION_4_3 = 30
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
    """Kafka's nodes come back after ours is elected: the one whose vote is needed has an empty log, with which nobody is elected."""
    active = cluster.controller_id()
    if active == OUR_ID:
        lose_metadata(cluster, KAFKA_IDS[0])
        return
    (other,) = set(KAFKA_IDS) - {active}
    cluster.kill(other)
    # Committed without the one that was killed: our node has it, and all that was committed before.
    cluster.wait_for(lambda: other not in {broker.node_id for broker in cluster.metadata().brokers}, f"node {other} to be fenced")
    cluster.kill(active)
    shutil.rmtree(metadata_log(cluster, other))
    cluster.start(other)
    assert cluster.controller_id() == OUR_ID
    check_snapshot_was_fetched(cluster, other)
    cluster.start(active)
    cluster.wait_in_sync()


def make_kafka_the_controller(cluster: Cluster) -> None:
    """Ours is away until another is elected, and comes back without its metadata."""
    lose_metadata(cluster, OUR_ID)
    assert cluster.controller_id() in KAFKA_IDS


def lose_metadata(cluster: Cluster, node_id: int) -> None:
    """Kill a node and, when there is an active controller, start it without its metadata log: it has to fetch a snapshot."""
    cluster.kill(node_id)
    cluster.controller_id()
    shutil.rmtree(metadata_log(cluster, node_id))
    cluster.start(node_id)
    check_snapshot_was_fetched(cluster, node_id)
    cluster.wait_in_sync()


def metadata_log(cluster: Cluster, node_id: int) -> Path:
    return cluster.nodes[node_id].data_dir / "__cluster_metadata-0"


def check_snapshot_was_fetched(cluster: Cluster, node_id: int) -> None:
    """Without one its log would begin at 0."""
    assert min(int(path.stem) for path in metadata_log(cluster, node_id).glob("*.log")) > 0


@needs(missing_java())
@pytest.mark.timeout(900)
def test_either_kind_takes_over_from_the_other_and_nothing_acked_is_lost(tmp_path: Path) -> None:
    metrics_address = f"127.0.0.1:{free_port()}"
    cluster = Cluster(tmp_path, KINDS, settings=SETTINGS, node_settings={OUR_ID: {"barnabas.metrics.listener": metrics_address}})
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
            assert 17 in served_fetch_versions(metrics_address)

            kill_the_controller(campaign)
            make_kafka_the_controller(cluster)
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
