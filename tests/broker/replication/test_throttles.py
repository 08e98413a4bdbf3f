"""Replication throttles among three brokers: a new replica catches up at the rate, and nobody else waits for it (KIP-73)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.metadata.cluster_state import RESOURCE_BROKER, RESOURCE_TOPIC
from protocol.messages.stored.metadata_records import ConfigRecord, PartitionChangeRecord
from tests.broker.replication.cluster import Cluster, Node

VALUE = "x" * 1_000
BATCHES = 60
RATE = 5_000  # bytes a second: a twelfth of what there is
STEP_MS = 100
FETCH_BYTES = 2_500
SLACK_BYTES = 3 * FETCH_BYTES  # the rate is looked at before a fetch, and what that brings comes on top

SIDES = ("leader", "follower")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Broker 1 leads a and b; broker 2 follows both. a has 60 KB, and broker 3 is to get it; it is in sync with b."""
    cluster = Cluster(tmp_path, replica_fetch_max_bytes=FETCH_BYTES)
    cluster.create_topic("a", replicas=(1, 2))
    cluster.create_topic("b", replicas=(1, 2, 3))
    cluster.settle(1)
    for _ in range(BATCHES):
        cluster.produce("a", VALUE)
    cluster.settle(2)
    yield cluster
    for node in cluster.alive:
        node.die()


def alter(cluster: Cluster, resource_type: int, name: str, **configs: str | int | None) -> None:
    """Configs by their names with underscores for dots; None takes one away."""
    cluster.commit(
        [
            ConfigRecord(
                resource_type=resource_type,
                resource_name=name,
                name=key.replace("_", "."),
                value=None if value is None else str(value),
            )
            for key, value in configs.items()
        ]
    )
    cluster.hear_all()


def throttle(cluster: Cluster, side: str, rate: int = RATE, topic: str = "a") -> None:
    """As kafka-reassign-partitions does: the leader's and the new replica's side, each by its broker's id."""
    alter(cluster, RESOURCE_BROKER, "1" if side == "leader" else "3", **{f"{side}_replication_throttled_rate": rate})
    replicas = "0:1,0:2" if side == "leader" else "0:3"
    alter(cluster, RESOURCE_TOPIC, topic, **{f"{side}_replication_throttled_replicas": replicas})


def reassign(cluster: Cluster) -> None:
    topic_id = cluster.controller.state.topics["a"].topic_id
    cluster.commit([PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=[1, 2, 3], adding_replicas=[3])])
    cluster.hear_all()


def pass_time(cluster: Cluster, ms: int) -> Iterator[int]:
    """The milliseconds that are over, a step at a time; everything that is on its way has arrived then."""
    for passed_ms in range(0, ms, STEP_MS):
        cluster.advance(STEP_MS)
        cluster.hear_all()
        cluster.run()
        yield passed_ms + STEP_MS


def copied_bytes(node: Node) -> int:
    return node.log("a").size_bytes


@pytest.mark.parametrize("side", SIDES)
def test_reassigned_replica_catches_up_at_the_rate_and_joins_the_isr(cluster: Cluster, side: str) -> None:
    throttle(cluster, side)
    reassign(cluster)

    for passed_ms in pass_time(cluster, 8_000):
        assert copied_bytes(cluster.nodes[3]) <= RATE * max(passed_ms, 1_000) / 1_000 + SLACK_BYTES
    assert copied_bytes(cluster.nodes[3]) >= RATE * 8 - SLACK_BYTES
    assert cluster.isr() == (1, 2)

    for _ in pass_time(cluster, 10_000):
        pass
    assert cluster.isr() == (1, 2, 3)


@pytest.mark.parametrize("side", SIDES)
def test_others_are_not_slowed(cluster: Cluster, side: str) -> None:
    """Neither the replica of another topic by the same connection, nor one of the throttled topic that is in sync."""
    throttle(cluster, side)
    alter(cluster, RESOURCE_TOPIC, "a", **{f"{side}_replication_throttled_replicas": "*"})
    reassign(cluster)
    for _ in pass_time(cluster, 1_000):
        pass
    behind = copied_bytes(cluster.nodes[3])

    answers = [cluster.produce(topic, VALUE) for topic in ("b", "b", "a")]
    cluster.advance(STEP_MS + 1)  # a fetch that names the partitions which do not wait is under way by now
    cluster.run()

    assert [[answer.error_code for answer in each] for each in answers] == [[0], [0], [0]]
    assert cluster.nodes[3].log("b").log_end_offset == 2
    assert copied_bytes(cluster.nodes[3]) < behind + 2 * FETCH_BYTES


@pytest.mark.parametrize("side", SIDES)
def test_throttle_that_is_removed_lets_go_at_once(cluster: Cluster, side: str) -> None:
    throttle(cluster, side)
    reassign(cluster)
    for _ in pass_time(cluster, 1_000):
        pass

    alter(cluster, RESOURCE_TOPIC, "a", **{f"{side}_replication_throttled_replicas": None})
    cluster.advance(500)  # the fetch that waits at the leader
    cluster.run()

    assert cluster.isr() == (1, 2, 3)


@pytest.mark.parametrize("side", SIDES)
def test_rate_that_is_raised_holds_at_once(cluster: Cluster, side: str) -> None:
    throttle(cluster, side)
    reassign(cluster)
    for _ in pass_time(cluster, 1_000):
        pass

    alter(cluster, RESOURCE_BROKER, "", **{f"{side}_replication_throttled_rate": 1})  # the broker's own goes first
    throttle(cluster, side, rate=100_000)
    cluster.advance(500)
    cluster.run()

    assert cluster.isr() == (1, 2, 3)


@pytest.mark.parametrize("side", SIDES)
def test_throttle_outlives_a_restart(cluster: Cluster, side: str) -> None:
    throttle(cluster, side)
    for node_id in (3, 2):
        cluster.kill(node_id)
        cluster.start(node_id)
    if side == "leader":
        cluster.change_leader("a", 2)
        alter(cluster, RESOURCE_BROKER, "2", leader_replication_throttled_rate=RATE)
    cluster.settle(2)
    reassign(cluster)

    for _ in pass_time(cluster, 5_000):
        pass

    assert RATE * 5 - SLACK_BYTES <= copied_bytes(cluster.nodes[3]) <= RATE * 5 + SLACK_BYTES


def test_rate_that_is_shown_counts_replicas_in_sync_too(cluster: Cluster) -> None:
    throttle(cluster, "leader")

    cluster.produce("a", VALUE)
    cluster.run()

    leader = cluster.nodes[1].replica_manager.quotas.leader
    assert leader.rate.per_second >= len(VALUE)
    assert cluster.nodes[1].replica_manager.quotas.follower.rate.per_second == 0
