"""Eligible leader replicas (KIP-966) in a cluster of both kinds: a controller of either takes the same decisions, and its brokers of either
act on them.

Replicas on brokers 2, 3 and 4, min.insync.replicas 2. Broker 5 has none: it stays, and tells what the metadata say.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tests.clients.adapters import ConfluentKafka
from tests.support.cluster import BARNABAS, BROKER_ONLY, CONTROLLER_ONLY, KAFKA, WITH_ELR, Cluster
from tests.support.kafka import missing_java
from tests.support.messages import Message
from tests.support.requirements import needs

CONTROLLER, WITNESS = 1, 5
REPLICAS = (2, 3, 4)
TOPIC = "t"
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "300",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
}


class State(NamedTuple):
    """Of the partition. A replica that left the ISR too early to have all that is acknowledged is neither in it nor eligible."""

    leader: int
    isr: set[int]
    eligible: set[int]
    last_known: set[int]


def state(cluster: Cluster) -> State:
    (topic,) = cluster.ask_node(WITNESS, DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)]), 0).topics
    (partition,) = topic.partitions
    return State(
        partition.leader_id,
        set(partition.isr_nodes),
        set(partition.eligible_leader_replicas or ()),
        set(partition.last_known_elr or ()),
    )


def expect(cluster: Cluster, leader: int, isr: set[int], eligible: set[int], last_known: set[int]) -> None:
    wanted = State(leader, isr, eligible, last_known)
    try:
        cluster.wait_for(lambda: state(cluster) == wanted, f"{wanted}", timeout_s=30)
    except AssertionError:
        pytest.fail(f"{state(cluster)} is not {wanted}")


@needs(missing_java())
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kinds", [(KAFKA, BARNABAS, KAFKA, BARNABAS, BARNABAS), (BARNABAS, KAFKA, BARNABAS, KAFKA, BARNABAS)], ids=["kafka", "ours"]
)
def test_who_left_a_small_isr_orderly_may_lead_and_who_crashed_may_not(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """The ids are those of the controller's kind."""
    roles = {node_id: CONTROLLER_ONLY if node_id == CONTROLLER else BROKER_ONLY for node_id in range(1, len(kinds) + 1)}
    node_settings = {node_id: {"process.roles": role} for node_id, role in roles.items()}
    with Cluster(tmp_path, kinds, settings=SETTINGS, node_settings=node_settings, features=[WITH_ELR]) as cluster:
        cluster.create_topic(TOPIC, assignment=[REPLICAS], config={"min.insync.replicas": "2"})
        ConfluentKafka().produce(cluster.nodes[WITNESS], TOPIC, [Message(0, None, b"acked")] * 100)
        first, second, third = REPLICAS
        expect(cluster, first, set(REPLICAS), set(), set())

        cluster.stop(second)
        expect(cluster, first, {first, third}, set(), set())
        cluster.stop(third)  # the ISR becomes smaller than min.insync.replicas: who leaves it from now on has all that is acknowledged
        expect(cluster, first, {first}, {third}, set())
        cluster.stop(first)
        expect(cluster, -1, set(), {first, third}, {first})
        cluster.start(second)  # it was not eligible when it left
        expect(cluster, -1, set(), {first, third}, {first})
        cluster.start(third)
        cluster.start(first)
        cluster.wait_in_sync(TOPIC)
        expect(cluster, third, set(REPLICAS), set(), set())

        leader, others = third, (first, second)
        cluster.kill(others[0])
        expect(cluster, leader, {leader, others[1]}, set(), set())
        cluster.kill(others[1])
        expect(cluster, leader, {leader}, {others[1]}, set())
        cluster.kill(leader)
        expect(cluster, -1, set(), {leader, others[1]}, {leader})
        cluster.start(others[1])  # what it had not made durable may be gone
        expect(cluster, -1, set(), {leader}, {leader})
        cluster.start(leader)  # nobody is eligible any more: the last known leader has the most
        cluster.start(others[0])
        cluster.wait_in_sync(TOPIC)
        expect(cluster, leader, set(REPLICAS), set(), set())
        cluster.wait_readable(TOPIC, 100)
