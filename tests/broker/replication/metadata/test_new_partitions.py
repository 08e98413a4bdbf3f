"""Partitions of a new topic are made a few in each turn; those who wait for them hear of the last one."""

from __future__ import annotations

import random
from pathlib import Path

from broker.metadata.encoded_topic_records import EncodedTopicRecords
from broker.replication.metadata.new_partitions import NewPartitions
from protocol.messages.stored.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from storage.log_manager import LogManager
from tests.broker.replication.world import World

TOPIC_ID = (77).to_bytes(16, "big")


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


def test_a_default_of_all_topics_is_taken_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(300):
        world.create_topic(f"t{number}")
    partitions = [world.partition(f"t{number}") for number in range(300)]

    world.metadata.apply_committed([ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="77")])

    assert all(partition.log.config.retention_ms == 77 for partition in partitions)


def test_a_range_waits_as_its_partitions_would() -> None:
    waiting = NewPartitions()
    waiting.add(("a", 0))
    waiting.add_range("b", 2, 6)
    heard: list[str] = []
    waiting.when_none_of(["b"], lambda: heard.append("b"))

    waiting.discard(("b", 3))
    waiting.discard(("b", 2))
    waiting.discard(("b", 2))
    waiting.discard(("b", 9))
    waiting.add_range("b", 8, 10)

    assert list(waiting) == [("a", 0), ("b", 4), ("b", 5), ("b", 8), ("b", 9)]
    assert [("b", index) in waiting for index in range(2, 11)] == [index in (4, 5, 8, 9) for index in range(2, 11)]
    assert len(waiting) == 5
    for index in (9, 8, 5, 4):
        assert heard == []
        waiting.discard(("b", index))
    assert heard == ["b"] and list(waiting) == [("a", 0)]


def test_a_range_is_forgotten_with_its_topic() -> None:
    waiting = NewPartitions()
    waiting.add_range("a", 0, 1000)
    waiting.add(("b", 0))
    heard: list[str] = []
    waiting.when_none_of(["a"], lambda: heard.append("a"))

    waiting.discard_topics(["a"])

    assert heard == ["a"] and list(waiting) == [("b", 0)] and ("a", 5) not in waiting


def test_the_offsets_topic_is_not_made_all_at_once(tmp_path: Path) -> None:
    """50 partitions took 20 ms in one turn of the loop. A coordinator that loads one meanwhile has it made."""
    world = World(tmp_path)
    world.replica_manager.end_loading()

    world.executor.keeps_creations = True
    world.create_topic("__consumer_offsets", partitions=50)
    made_count = sum(world.replica_manager.find_partition("__consumer_offsets", index) is not None for index in range(50))
    loaded = [world.replica_manager.get_for_loading("__consumer_offsets", index).is_leader for index in range(50)]

    assert made_count < 50
    assert loaded == [True] * 50


def test_a_prepared_topic_is_made_in_turns(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.replica_manager.end_loading()
    prepared = EncodedTopicRecords(TOPIC_ID, 0, [TopicRecord(name="a", topic_id=TOPIC_ID)])
    world.register_broker(1)
    for index in range(300):
        prepared.add(PartitionRecord(partition_id=index, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1))
    made: list[None] = []

    world.executor.keeps_creations = True
    world.metadata.apply_committed(prepared)
    world.replica_manager.when_made(["a"], lambda: made.append(None))
    asked_for = world.replica_manager.get_partition("a", 299)
    made_at_once = bool(made)
    while not made:
        world.executor.run()
        world.clock.advance(1)

    assert asked_for.is_leader and not made_at_once
    assert all(world.replica_manager.get_partition("a", index).is_leader for index in range(300))


def test_a_large_topic_is_deleted_in_turns_and_may_come_again(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    logs = LogManager([tmp_path / "data"], random_source=random.Random(1))
    world = World(tmp_path, logs=logs)
    world.replica_manager.end_loading()
    world.create_topic("a", partitions=300)
    world.clock.advance(1000)
    old = [world.replica_manager.get_partition("a", index) for index in range(300)]
    left: list[None] = []

    world.delete_topic("a", takes_turn=False)
    world.replica_manager.when_removed(lambda: left.append(None))
    closed_at_once_count = 300 - len(logs.logs())
    world.create_topic("a", partitions=300)
    found_at_once = [world.replica_manager.find_partition("a", index) for index in (0, 299)]
    while logs.logs():
        world.clock.advance(1)
    left_before_the_disk = bool(left)
    for _ in range(1000):
        world.executor.run()
        world.clock.advance(1)

    assert closed_at_once_count == 0
    assert all(partition.is_deleted for partition in old)
    assert found_at_once == [None, None]
    assert left == [None] and not left_before_the_disk
    new = [world.replica_manager.get_partition("a", index) for index in range(300)]
    assert all(partition.is_leader and partition.topic_id != old[0].topic_id for partition in new)


def test_a_stop_in_the_middle_of_a_large_deletion_ends_it(tmp_path: Path) -> None:
    """Else the next start would take the directories that kept their names for strays."""
    (tmp_path / "data").mkdir()
    logs = LogManager([tmp_path / "data"], random_source=random.Random(1))
    logs.lock()
    world = World(tmp_path, logs=logs)
    world.replica_manager.end_loading()
    world.create_topic("a", partitions=300)
    world.clock.advance(1000)

    world.delete_topic("a", takes_turn=False)
    world.replica_manager.stop()
    logs.close_clean()

    names = [path.name for path in (tmp_path / "data").iterdir() if path.is_dir()]
    assert len(names) == 300 and all(name.endswith("-delete") for name in names)
