"""What one broker tells of groups' lag, when it does not know the end of a partition, and when there are more series than it may tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.observability.metrics import Metrics
from broker.server.lag_gauges import GroupLag
from tests.broker.groups.transcript import Transcript, stable_group
from tests.broker.observability.test_metrics import rendered
from tests.broker.replication.world import World, batch

LAG, LAG_SUM = "kafka_consumergroup_lag", "kafka_consumergroup_lag_sum"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.register_broker(1)
    world.create_topic("t", replicas=(1,), partitions=2)
    world.create_topic("mine", replicas=(1,))
    world.produce("t", batch(*"12345"))
    world.produce("t", batch("x"), index=1)
    return world


@pytest.fixture
def groups() -> Transcript:
    """A group of two members that has committed 3 in the first partition of `t`, and 1 in the second."""
    script = stable_group("a", "b")
    script.commit(3, "a", generation=1)
    script.commit(1, "a", generation=1, partition=1)
    return script


def tell(world: World, groups: Transcript, series_max: int = 10_000) -> dict[str, float]:
    metrics = Metrics()
    lag = GroupLag(world.metadata, world.replica_manager, groups.coordinator, None, listener_name="PLAINTEXT", series_max=series_max)
    metrics.add_collector(lag.collect)
    return rendered(metrics)


def of_partition(partition: int) -> str:
    return f'{{consumergroup="g",partition="{partition}",topic="t"}}'


def test_a_coordinator_tells_what_its_groups_have_left_of_partitions_that_it_leads(world: World, groups: Transcript) -> None:
    values = tell(world, groups)

    assert (values[LAG + of_partition(0)], values[LAG + of_partition(1)]) == (2, 0)
    assert values[f"kafka_consumergroup_current_offset{of_partition(0)}"] == 3
    assert values[f'{LAG_SUM}{{consumergroup="g",topic="t"}}'] == 2
    assert values['kafka_consumergroup_current_offset_sum{consumergroup="g",topic="t"}'] == 4
    assert values['kafka_consumergroup_members{consumergroup="g"}'] == 2
    assert values['kafka_topic_partition_current_offset{partition="0",topic="t"}'] == 5
    assert values['kafka_topic_partitions{topic="t"}'] == 2


def test_a_partition_whose_leader_has_not_told_its_end_has_no_lag_nor_has_its_topic(world: World, groups: Transcript) -> None:
    world.change_partition("t", 1, leader=2)

    values = tell(world, groups)

    assert values[LAG + of_partition(0)] == 2
    assert LAG + of_partition(1) not in values
    assert values[f"kafka_consumergroup_current_offset{of_partition(1)}"] == 1
    assert not any(name.startswith(LAG_SUM) for name in values)
    assert 'kafka_topic_partition_current_offset{partition="1",topic="t"}' not in values


def test_a_topic_s_partitions_are_told_by_the_leader_of_the_first_one_that_has_one(world: World, groups: Transcript) -> None:
    world.change_partition("t", 0, leader=-1)
    first = tell(world, groups)
    world.change_partition("t", 0, leader=2)

    assert first['kafka_topic_partitions{topic="t"}'] == 2
    assert 'kafka_topic_partitions{topic="t"}' not in tell(world, groups)


def test_a_commit_beyond_the_end_is_no_lag(world: World, groups: Transcript) -> None:
    groups.commit(9, "a", generation=1)

    assert tell(world, groups)[LAG + of_partition(0)] == 0


def test_an_offset_in_a_partition_that_is_not_there_is_not_told(world: World, groups: Transcript) -> None:
    world.delete_topic("t")

    values = tell(world, groups)

    assert [name for name in values if 'topic="t"' in name] == []
    assert values['kafka_consumergroup_members{consumergroup="g"}'] == 2


@pytest.mark.parametrize(
    ("series_max", "there", "left_out"),
    [
        (31, ["members", "lag_sum", "lag", "current_offset", "replicas"], 0),
        (30, ["members", "lag_sum", "lag", "current_offset"], 15),
        (15, ["members", "lag_sum", "lag"], 21),
        (9, ["members", "lag_sum"], 25),
        (3, [], 24),
        (2, [], 26),
    ],
)
def test_what_does_not_fit_is_left_out_as_a_whole_and_the_details_first(
    world: World, groups: Transcript, series_max: int, there: list[str], left_out: int
) -> None:
    values = tell(world, groups, series_max)

    names = {"members": "kafka_consumergroup_members", "lag_sum": LAG_SUM, "lag": LAG}
    names |= {name: f"kafka_topic_partition_{name}" for name in ("current_offset", "replicas")}
    told = {name.partition("{")[0] for name in values}
    assert [short for short, name in names.items() if name in told] == there
    assert values["barnabas_lag_series_left_out"] == left_out
