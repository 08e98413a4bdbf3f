"""A cluster of Apache Kafka 4.3.1 becomes one of ours and one of Kafka's again, node by node, on the same directories and node ids, with
producers and groups of either protocol running: nothing is lost, no client is restarted. With eligible leader replicas (KIP-966)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cluster_campaign import ClusterCampaign
from tests.faults.nemesis import Strike
from tests.faults.transactional_campaign import TransactionalCampaign
from tests.faults.transactional_load import AIOKAFKA_PIPELINE, JAVA_PIPELINE, SOURCE
from tests.support.cluster import BARNABAS, KAFKA, KINDS, WITH_ELR, Cluster
from tests.support.kafka import missing_java
from tests.support.requirements import needs

NODE_IDS = (1, 2, 3)
SETTINGS = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "1000"}
SENDS_PER_SECOND = 100
TRANSACTION_TIMEOUT_MS = 60_000  # longer than a node of Kafka takes to stop and start
CALM_S = 1.0  # between two nodes, under load


def replace(cluster: Cluster, node_id: int, kind: str) -> None:
    """Stop a node and start the other kind in its place: the same id, ports, settings and directory."""
    old = cluster.nodes[node_id]
    old.stop()
    new = KINDS[kind](old.directory, old.settings)
    new.name, new.host, new.port = f"{kind} node {node_id}", old.host, old.port
    cluster.nodes[node_id] = new
    cluster.start(node_id)
    cluster.wait_in_sync()


def move_to(cluster: Cluster, kind: str) -> list[Strike]:
    for node_id in NODE_IDS:
        time.sleep(CALM_S)
        replace(cluster, node_id, kind)
    time.sleep(CALM_S)
    return []


def move_under(cluster: Cluster, kind: str, plain: ClusterCampaign, copiers: TransactionalCampaign) -> list[dict[str, list[Any]]]:
    """Move while both run. The anomalies of both."""
    of_copiers: list[dict[str, list[Any]]] = []

    def move() -> list[Strike]:
        of_copiers.append(copiers.run_during(lambda: move_to(cluster, kind)).anomalies)
        return []

    return [plain.run_during(move).anomalies, *of_copiers]


@needs(missing_java())
@pytest.mark.timeout(900)
def test_a_running_kafka_cluster_moves_to_ours_and_back(tmp_path: Path) -> None:
    """Beside producers and groups, copiers in transactions: their output is their input, once, and neither the source nor Java's copier
    fails. aiokafka's may be started again: its sender ends when a FindCoordinator fails otherwise than it expects, as when its connection
    ends. librdkafka's copiers are left out: when their coordinator moves they may hang in a call that asks no broker (docs/notes.md),
    which takes a minute to notice."""
    with Cluster(tmp_path, [KAFKA] * len(NODE_IDS), settings=SETTINGS, features=[WITH_ELR, "transaction.version=2"]) as cluster:
        plain = ClusterCampaign(
            cluster,
            seed=1,
            pause_s=0,
            has_java=False,
            sends_per_second=SENDS_PER_SECOND,
            topic_config={},
            requests_in_flight=1,  # for the reason that tests/faults/chaos.py gives
        )
        copiers = TransactionalCampaign(cluster, (AIOKAFKA_PIPELINE, JAVA_PIPELINE), seed=1, pause_s=0, timeout_ms=TRANSACTION_TIMEOUT_MS)
        try:
            for kind in (BARNABAS, KAFKA):
                found = move_under(cluster, kind, plain, copiers)
                assert found == [{}, {}], found
            assert plain.check_all() == {}
            assert copiers.check_all() == {}
            assert not {SOURCE, "java-0"} & {*copiers.load.failures}, copiers.load.history.client_errors
        finally:
            plain.close()
            copiers.close()
