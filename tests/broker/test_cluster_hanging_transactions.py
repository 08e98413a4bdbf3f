"""Three processes: a leader asks the coordinators of other brokers about a transaction that hangs and one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.test_cluster_metrics import scrape
from tests.support.cluster import Cluster, free_ports
from tests.support.raw_transactions import add_partition, init_producer_id, produce

TRANSACTION_COORDINATOR = 1
TIMEOUT_MS = 1_000  # also the time between two looks
HUNG_PRODUCER = (4711, 0)
"""No coordinator knows it."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    listeners = {
        node_id: {"barnabas.metrics.listener": f"127.0.0.1:{port}"} for node_id, port in zip((1, 2, 3), free_ports(3), strict=True)
    }
    settings = {
        "transaction.max.timeout.ms": str(TIMEOUT_MS),
        "transaction.partition.verification.enable": "false",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "600000",
    }
    with Cluster(tmp_path, settings=settings, node_settings=listeners) as cluster:
        yield cluster


def find_coordinator(cluster: Cluster, transactional_id: str) -> int:
    request = FindCoordinatorRequest(key_type=TRANSACTION_COORDINATOR, coordinator_keys=[transactional_id])

    def found() -> int:
        (answer,) = cluster.ask(request, 4).coordinators
        return answer.node_id if answer.error_code == ErrorCode.NONE else 0

    return cluster.wait_for(found, "a coordinator")


def test_only_what_no_coordinator_has_is_named_by_the_leader(cluster: Cluster) -> None:
    coordinator_id = find_coordinator(cluster, "alive")
    leader_id = 1 + coordinator_id % 3
    for topic in ("alive", "hung"):
        cluster.create_topic(topic, assignment=[[leader_id, coordinator_id]])
    at_coordinator, at_leader = (partial(ask, cluster, node_id) for node_id in (coordinator_id, leader_id))
    producer = cluster.wait_for(lambda: init_producer_id(at_coordinator, "alive", TIMEOUT_MS), "a producer id")
    add_partition(at_coordinator, "alive", producer, "alive")

    assert produce(at_leader, "alive", producer, "alive") is ErrorCode.NONE
    assert produce(at_leader, "hung", HUNG_PRODUCER, "hung") is ErrorCode.NONE

    lines = cluster.wait_for(lambda: lines_of(cluster, leader_id), "the line of the hanging transaction")
    assert [line.partition(" topic=")[2] for line in lines] == ["hung partition=0 producer_id=4711 producer_epoch=0 start_offset=0"]
    assert f"--bootstrap-server {cluster.nodes[leader_id].bootstrap} abort --topic hung --partition 0 --start-offset 0`" in lines[0]
    assert [line for node_id in cluster.nodes if node_id != leader_id for line in lines_of(cluster, node_id)] == []
    values = scrape(cluster)[coordinator_id]
    assert values['barnabas_transactional_ids{state="Ongoing"}'] == 1
    assert values["barnabas_oldest_transaction_age_ms"] > TIMEOUT_MS


def ask(cluster: Cluster, node_id: int, message: Any, version: int) -> Any:
    return cluster.ask_node(node_id, message, version)


def lines_of(cluster: Cluster, node_id: int) -> list[str]:
    return [line for line in cluster.nodes[node_id].log_path.read_text().splitlines() if "a transaction hangs" in line]
