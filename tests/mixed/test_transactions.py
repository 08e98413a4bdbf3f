"""Transactions in a cluster of both kinds: each kind coordinates some, leads some of the partitions, and keeps some of the offsets."""

from __future__ import annotations

from pathlib import Path

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.clients.transactional import ConfluentProducer, committed_offset, read, run_transaction
from tests.support.cluster import BARNABAS, KAFKA, Cluster

KINDS = (BARNABAS, KAFKA, BARNABAS, KAFKA)
SETTINGS = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}
ASSIGNMENT = [[1, 2, 3], [2, 3, 4], [3, 4, 1], [4, 1, 2]]
PARTITIONS = len(ASSIGNMENT)
PRODUCERS = 12
TRANSACTION_KEY_TYPE = 1


def coordinator_of(cluster: Cluster, transactional_id: str) -> int:
    request = FindCoordinatorRequest(key_type=TRANSACTION_KEY_TYPE, coordinator_keys=[transactional_id])
    found: int = cluster.ask(request, 6).coordinators[0].node_id
    return found


def run_transactions(cluster: Cluster, topic: str) -> None:
    """Of each producer two that are committed and one that is aborted, at the level that the cluster has now."""
    cluster.create_topic(topic, assignment=ASSIGNMENT)
    committed = []
    coordinators = set()
    for name in (f"{topic}-p{number}" for number in range(PRODUCERS)):
        producer = ConfluentProducer(cluster.bootstrap, name)
        producer.init()
        coordinators.add(coordinator_of(cluster, name))
        for turn, is_committed in enumerate((True, False, True)):
            values = [f"{name}, turn {turn}, partition {index}" for index in range(PARTITIONS)]
            run_transaction(producer, topic, *values, is_committed=is_committed, partitions=PARTITIONS, offset_of=(name, turn + 1))
            committed += values if is_committed else []
        producer.close()

    assert coordinators == set(cluster.nodes), "too few producers for a coordinator on each node"
    assert read(cluster, topic, count=len(committed), partitions=PARTITIONS) == sorted(committed)
    assert {committed_offset(cluster, f"{topic}-p{number}", topic) for number in range(PRODUCERS)} == {3}


def test_transactions_over_nodes_of_both_kinds(tmp_path: Path) -> None:
    format_words = ("--release-version", "4.0-IV3", "--feature", "transaction.version=0")
    with Cluster(tmp_path, KINDS, settings=SETTINGS, format_words=format_words) as cluster:
        run_transactions(cluster, "at-0")
        level = FeatureUpdateKey(feature="transaction.version", max_version_level=2)
        assert cluster.ask(UpdateFeaturesRequest(feature_updates=[level]), 1).error_code == ErrorCode.NONE
        run_transactions(cluster, "at-2")
