"""ByteRate and what of the cluster's configs throttles this broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.metadata.cluster_state import RESOURCE_BROKER, RESOURCE_TOPIC
from broker.replication.quotas import ByteRate, ReplicationQuota, throttled_partitions
from protocol.messages.stored.metadata_records import ConfigRecord
from tests.broker.replication.world import World
from tests.support.clock import ManualClock

UNBOUNDED = 2**63 - 1


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def alter(world: World, resource_type: int, name: str, key: str, value: str | None) -> None:
    world.metadata.apply_committed([ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)])


def is_throttled(quota: ReplicationQuota, topic: str) -> list[bool]:
    return [quota.is_throttled(topic, partition) for partition in range(3)]


# -- the rate ----------------------------------------------------------------------------------------------------------


def test_rate_is_over_one_window_at_first() -> None:
    """Else the first bytes, after no time at all, would be an endless rate."""
    clock = ManualClock()
    rate = ByteRate(clock, window_seconds=1, windows_count=11)

    rate.record(500)

    assert rate.per_second == 500
    clock.advance(1_000)
    assert rate.per_second == 500
    clock.advance(1_000)
    assert rate.per_second == 250


def test_rate_forgets_what_is_older_than_its_windows() -> None:
    clock = ManualClock()
    rate = ByteRate(clock, window_seconds=1, windows_count=2)
    rate.record(1_000)
    clock.advance(1_500)
    rate.record(300)
    assert rate.per_second == 1_300 * 1_000 / 1_500

    clock.advance(500)

    assert rate.per_second == 300
    clock.advance(1_500)
    assert rate.per_second == 0


def test_steady_stream_has_its_rate() -> None:
    clock = ManualClock()
    rate = ByteRate(clock, window_seconds=1, windows_count=11)

    for _ in range(300):
        rate.record(100)
        clock.advance(100)

    assert 1_000 <= rate.per_second <= 1_020


# -- configs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "throttled"),
    [
        (("*",), [0, 1, 2]),
        (("0:1", "2:1", "1:2"), [0, 2]),
        (("0:11", "1:12"), []),
        (("0:1", ""), [0]),
        ((), []),
    ],
)
def test_list_of_replicas_names_the_partitions_of_this_broker(replicas: tuple[str, ...], throttled: list[int]) -> None:
    partitions = throttled_partitions(replicas, 1)

    assert [partition for partition in range(3) if partition in partitions] == throttled


def test_topics_configs_throttle_each_side_by_itself(world: World) -> None:
    world.create_topic("a", partitions=3)
    quotas = world.replica_manager.quotas
    assert not quotas.leader.throttled and not quotas.follower.throttled

    alter(world, RESOURCE_TOPIC, "a", "leader.replication.throttled.replicas", "1:1,2:7")
    alter(world, RESOURCE_TOPIC, "a", "follower.replication.throttled.replicas", "*")

    assert is_throttled(quotas.leader, "a") == [False, True, False]
    assert is_throttled(quotas.follower, "a") == [True, True, True]
    alter(world, RESOURCE_TOPIC, "a", "leader.replication.throttled.replicas", None)
    alter(world, RESOURCE_TOPIC, "a", "follower.replication.throttled.replicas", "")
    assert not quotas.leader.throttled and not quotas.follower.throttled


def test_topic_without_replicas_here_is_known_before_they_come(world: World) -> None:
    """kafka-reassign-partitions sets the throttles before it moves the replicas."""
    world.create_topic("a", partitions=3, replicas=(2, 3), leader=2)

    alter(world, RESOURCE_TOPIC, "a", "follower.replication.throttled.replicas", "2:1")

    assert is_throttled(world.replica_manager.quotas.follower, "a") == [False, False, True]


def test_deleted_topic_is_throttled_no_more(world: World) -> None:
    world.create_topic("a", leader_replication_throttled_replicas="*")
    assert is_throttled(world.replica_manager.quotas.leader, "a")[0]

    world.delete_topic("a")

    assert not world.replica_manager.quotas.leader.throttled


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("leader", "leader.replication.throttled.rate"),
        ("follower", "follower.replication.throttled.rate"),
        ("moves", "replica.alter.log.dirs.io.max.bytes.per.second"),
    ],
)
def test_broker_s_own_rate_goes_before_that_of_all(world: World, name: str, key: str) -> None:
    quota: ReplicationQuota = getattr(world.replica_manager.quotas, name)
    assert quota.bytes_per_second == UNBOUNDED

    alter(world, RESOURCE_BROKER, "", key, "1000")
    assert quota.bytes_per_second == 1_000
    alter(world, RESOURCE_BROKER, "1", key, "2000")
    alter(world, RESOURCE_BROKER, "2", key, "3000")
    assert quota.bytes_per_second == 2_000

    alter(world, RESOURCE_BROKER, "1", key, None)
    assert quota.bytes_per_second == 1_000
    alter(world, RESOURCE_BROKER, "", key, None)
    assert quota.bytes_per_second == UNBOUNDED


def test_stored_rate_that_cannot_be_read_is_passed_over(world: World) -> None:
    alter(world, RESOURCE_BROKER, "", "leader.replication.throttled.rate", "1000")

    alter(world, RESOURCE_BROKER, "1", "leader.replication.throttled.rate", "many")

    assert world.replica_manager.quotas.leader.bytes_per_second == 1_000
