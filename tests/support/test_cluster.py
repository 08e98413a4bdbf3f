"""The clusters of the tests: what is asked of their processes happens, and is seen over the wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import BARNABAS, KAFKA, Cluster
from tests.support.kafka import missing_java
from tests.support.requirements import needs


def test_a_killed_follower_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings={"replica.lag.time.max.ms": "500"}) as cluster:
        cluster.create_topic("a", partitions=1)
        partition = cluster.partition("a")
        follower = next(node_id for node_id in partition.isr_nodes if node_id != partition.leader_id)

        cluster.kill(follower)
        cluster.wait_for(lambda: follower not in cluster.partition("a").isr_nodes, "the follower to leave the ISR")
        cluster.start(follower)

        cluster.wait_in_sync("a")
        assert cluster.running == (1, 2, 3)


def test_a_paused_controller_is_replaced_and_goes_on_as_a_follower(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        paused = cluster.controller_id()

        cluster.pause(paused)
        cluster.wait_for(lambda: cluster.controller_id() != paused, "another controller")
        cluster.resume(paused)

        cluster.create_topic("a", partitions=3)
        assert cluster.stop() == {1: 0, 2: 0, 3: 0}


@pytest.mark.parametrize("kind", [BARNABAS, pytest.param(KAFKA, marks=needs(missing_java()))])
def test_nodes_of_either_kind_may_be_controllers_and_brokers_apart(kind: str, tmp_path: Path) -> None:
    roles = {1: {"process.roles": "controller"}, 2: {"process.roles": "broker"}}
    with Cluster(tmp_path, [kind, kind], node_settings=roles) as cluster:
        assert cluster.controller_id() == 1
        assert list(cluster.brokers) == [2]

        cluster.create_topic("a", partitions=1)

        assert cluster.partition("a").replica_nodes == [2]
