"""Of three real processes one is killed that leads a partition and the metadata quorum: the others prove it, and go on without it."""

from __future__ import annotations

from pathlib import Path

from protocol.messages.metadata import MetadataResponsePartition
from tests.faults.failover import create_topic
from tests.support.cluster import Cluster

TOPIC = "led-by-the-controller"


def test_a_killed_leader_and_controller_is_proven_to_be_gone_and_replaced(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings={"controller.quorum.fetch.timeout.ms": "30000", "broker.session.timeout.ms": "60000"}) as cluster:
        killed_id = cluster.controller_id()
        left = [node_id for node_id in cluster.nodes if node_id != killed_id]
        create_topic(cluster, TOPIC, [killed_id, *left])
        epoch = cluster.partition(TOPIC).leader_epoch

        cluster.kill(killed_id)

        # No timeout can have told: they are longer than what is waited for.
        new_controller_id = cluster.wait_for(lambda: cluster.quorum().leader_id, "another leader of the quorum", timeout_s=20)
        led = cluster.wait_for(lambda: led_by(cluster, left), "another leader of the partition", timeout_s=20)
        assert led.leader_epoch > epoch and set(led.isr_nodes) == set(left)
        assert new_controller_id in left
        told = f"the process of node {killed_id} is gone"
        assert cluster.wait_for(lambda: any(told in cluster.nodes[each].log_path.read_text() for each in left), f"a line: {told}")
        assert cluster.nodes[new_controller_id].lines_with(f"fencing broker {killed_id}: its process is gone")

        cluster.start(killed_id)
        cluster.wait_in_sync(TOPIC)


def test_a_broker_that_was_killed_is_registered_again_at_once_and_a_stopped_one_is_not_taken_for_crashed(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings={"broker.session.timeout.ms": "60000", "initial.broker.registration.timeout.ms": "30000"}) as cluster:
        controller_id = cluster.controller_id()
        killed_id, stopped_id = (node_id for node_id in cluster.nodes if node_id != controller_id)

        cluster.restart(killed_id, hard=True)
        cluster.restart(stopped_id)

        assert f"fencing broker {stopped_id}" not in cluster.nodes[controller_id].log_path.read_text()


def led_by(cluster: Cluster, node_ids: list[int]) -> MetadataResponsePartition | None:
    partition = cluster.partition(TOPIC)
    return partition if partition.leader_id in node_ids else None
