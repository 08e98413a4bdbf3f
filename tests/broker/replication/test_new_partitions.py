"""Partitions of a new topic are made a few in each turn; those who wait for them hear of the last one."""

from __future__ import annotations

from pathlib import Path

from broker.replication.new_partitions import NewPartitions
from protocol.messages.stored.metadata_records import ConfigRecord
from tests.broker.replication.world import World, batch


def test_who_waits_for_a_topic_hears_when_none_of_it_waits() -> None:
    waiting = NewPartitions()
    for name in (("a", 0), ("a", 1), ("b", 0), ("c", 0)):
        waiting.add(name)
    heard: list[str] = []
    waiting.when_none_of(["a", "b", "none"], lambda: heard.append("a and b"))
    waiting.when_none_of(["none"], lambda: heard.append("none"))

    waiting.discard(("a", 0))
    waiting.discard_topics(["b", "none"])
    before = list(heard)
    waiting.discard(("a", 1))
    waiting.discard(("a", 1))

    assert before == ["none"]
    assert heard == ["none", "a and b"]
    assert list(waiting) == [("c", 0)]


def test_all_partitions_of_a_large_topic_are_led_once_it_is_made(tmp_path: Path) -> None:
    """Right after CreateTopics, 884 of 1,000 partitions were NOT_LEADER_OR_FOLLOWER."""
    world = World(tmp_path)
    world.replica_manager.end_loading()
    made: list[None] = []

    world.create_topic("a", partitions=1000)
    world.replica_manager.when_made(["a"], lambda: made.append(None))
    made_at_once = bool(made)
    while not made:
        world.clock.advance(1)

    assert not made_at_once, "a turn of the loop has no time for a thousand"
    assert all(world.replica_manager.get_partition("a", index).is_leader for index in range(1000))


def test_a_default_of_all_topics_is_taken_over_in_turns(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(300):
        world.create_topic(f"t{number}")
    partitions = [world.partition(f"t{number}") for number in range(300)]

    world.metadata.apply_committed([ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="77")])
    at_once_count = sum(partition.log.config.retention_ms == 77 for partition in partitions)
    world.clock.advance(10)

    assert 0 < at_once_count < 300
    assert all(partition.log.config.retention_ms == 77 for partition in partitions)


def test_a_topic_that_is_deleted_while_its_partitions_wait_is_not_made(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.replica_manager.end_loading()
    world.create_topic("a", partitions=100)
    heard: list[None] = []
    world.replica_manager.when_made(["a"], lambda: heard.append(None))

    world.delete_topic("a")
    world.clock.advance(10)
    world.create_topic("b")
    world.produce("b", batch("1"))

    assert heard == [None]
    assert world.replica_manager.find_partition("a", 99) is None
