"""What is told of each partition: by its leader alone."""

from __future__ import annotations

from pathlib import Path

from broker.observability.metrics import Metrics
from broker.server.partition_gauges import add_partition_gauges
from tests.broker.observability.test_metrics import rendered
from tests.broker.replication.world import World, batch


def test_a_leader_tells_of_its_partition_and_a_follower_does_not(tmp_path: Path) -> None:
    world, metrics = World(tmp_path), Metrics()
    add_partition_gauges(metrics, world.replica_manager)
    world.create_topic("t", replicas=(1, 2), isr=(1,), min_insync_replicas="2")
    world.create_topic("alone", replicas=(1,))
    world.create_topic("followed", replicas=(1, 2), leader=2)
    world.produce("alone", batch("x", "y"))

    values = rendered(metrics)

    prefix = "kafka_cluster_partition"
    names = ("replicascount", "insyncreplicascount", "underreplicated", "underminisr", "atminisr", "laststableoffsetlag")
    assert [values[f'{prefix}_{name}{{partition="0",topic="t"}}'] for name in names] == [2, 1, 1, 1, 0, 0]
    assert [values[f'{prefix}_{name}{{partition="0",topic="alone"}}'] for name in names] == [1, 1, 0, 0, 1, 0]
    assert not any('topic="followed"' in name for name in values if name.startswith(prefix))
