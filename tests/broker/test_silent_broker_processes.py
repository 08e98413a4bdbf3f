"""A broker that hangs is fenced by its session, also after all other brokers were silent together once; and long before the end of its
session where the others may notice its silence. Real processes, SIGSTOP."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.cluster import BARNABAS, BROKER_ONLY, CONTROLLER_ONLY, Cluster

TOPIC = "outlives-silence"
SESSION_S = 2
CHECKS_S = 1  # in which the controller looks for sessions several times, and finds none
FENCED_MAX_S = 20  # loose: a session and a check of it are 2.5 s; before it was never
# Only the sessions are asked here, not what proves a silence sooner.
SETTINGS = {
    "broker.session.timeout.ms": str(SESSION_S * 1000),
    "broker.heartbeat.interval.ms": "500",
    "barnabas.fast.fencing": "false",
    "min.insync.replicas": "1",
}
CONTROLLER_ID = 1
APART: Mapping[int, str] = {1: CONTROLLER_ONLY, 2: BROKER_ONLY, 3: BROKER_ONLY, 4: BROKER_ONLY}


def fencings(cluster: Cluster, node_id: int) -> int:
    """How often the controller has fenced the broker because it was silent."""
    return cluster.nodes[CONTROLLER_ID].log_path.read_text().count(f"fencing broker {node_id}: it has not been heard of")


def silence(cluster: Cluster, *node_ids: int) -> None:
    """Stop these brokers together, until all of them are fenced."""
    before = {node_id: fencings(cluster, node_id) for node_id in node_ids}
    cluster.pause(*node_ids)
    for node_id in node_ids:
        cluster.wait_for(
            lambda node_id=node_id: fencings(cluster, node_id) > before[node_id],  # type: ignore[misc]
            f"broker {node_id} to be fenced",
            timeout_s=FENCED_MAX_S,
        )


def come_back(cluster: Cluster, epoch: int, *node_ids: int) -> None:
    """Let them go on, until all replicas are in sync, in a later epoch than `epoch`: at first they tell what was so before."""
    cluster.resume(*node_ids)
    cluster.wait_known(TOPIC, lambda told: told.leader_epoch > epoch, "the election that followed the silence")
    cluster.wait_in_sync(TOPIC)


def test_a_broker_that_hangs_is_fenced_also_after_all_others_hung_together(tmp_path: Path) -> None:
    roles = {node_id: {"process.roles": role} for node_id, role in APART.items()}
    with Cluster(tmp_path, [BARNABAS] * len(APART), settings=SETTINGS, node_settings=roles) as cluster:
        cluster.create_topic(TOPIC, assignment=[[2, 3, 4]])
        epoch = cluster.partition(TOPIC).leader_epoch
        silence(cluster, 2, 3, 4)
        time.sleep(CHECKS_S)
        come_back(cluster, epoch, 2, 3, 4)

        silence(cluster, 2)

        cluster.wait_for(lambda: cluster.partition(TOPIC).leader_id in (3, 4), "another leader of its partition", timeout_s=FENCED_MAX_S)
        assert cluster.partition(TOPIC).leader_id in (3, 4)


LONG_SESSION_S = 120
NOTICED_MAX_S = 60  # loose: it takes two seconds; its session ends after LONG_SESSION_S
NOTICED_BY_OTHERS = {
    "broker.session.timeout.ms": str(LONG_SESSION_S * 1000),
    "controller.quorum.fetch.timeout.ms": str(LONG_SESSION_S * 1000),
    "min.insync.replicas": "2",
}


@pytest.mark.parametrize("is_controller", [False, True], ids=["broker", "active-controller"])
def test_a_node_that_hangs_is_missed_long_before_its_session_ends(tmp_path: Path, is_controller: bool) -> None:
    with Cluster(tmp_path, settings=NOTICED_BY_OTHERS) as cluster:
        controller_id = cluster.controller_id()
        hung_id = controller_id if is_controller else next(node_id for node_id in cluster.nodes if node_id != controller_id)
        others = [node_id for node_id in cluster.nodes if node_id != hung_id]
        cluster.create_topic(TOPIC, assignment=[[hung_id, *others]])
        cluster.pause(hung_id)
        frozen_s = time.monotonic()

        cluster.wait_for(lambda: cluster.partition(TOPIC).leader_id in others, "another leader", timeout_s=NOTICED_MAX_S)

        assert time.monotonic() - frozen_s < NOTICED_MAX_S < LONG_SESSION_S
        fencing = f"fencing broker {hung_id}: it answers nobody"
        fencings_by_others = cluster.wait_for(
            lambda: [line for each in others for line in cluster.nodes[each].log_path.read_text().splitlines() if fencing in line],
            "the line that tells of it",
        )
        assert len(fencings_by_others) == 1
        cluster.resume(hung_id)
        cluster.wait_in_sync(TOPIC)  # it comes back by itself
        assert set(cluster.partition(TOPIC).isr_nodes) == set(cluster.nodes)
