"""In which log directory a new replica's log is made, and what the controller is told of it (KIP-858)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.metadata_records import PartitionRecord, TopicRecord
from storage.log_manager import LogManager
from storage.meta_properties import MetaProperties
from tests.broker.replication.world import NODE_ID, World

TOPIC_ID = bytes(15) + b"\x01"
IDS = [bytes([7] * 16), bytes([8] * 16)]
GONE = bytes([9] * 16)


class Directories:
    """A broker with two log directories, and topic a whose partitions are where the test says."""

    def __init__(self, root: Path) -> None:
        self.paths = [root / "first", root / "second"]
        self.logs = LogManager(self.paths, random_source=random.Random(1))
        self.logs.lock()
        for directory, directory_id in zip(self.logs.directories, IDS, strict=True):
            directory.format(MetaProperties("cluster", NODE_ID, directory_id))
        self.world = World(root, logs=self.logs)
        self.world.register_broker(NODE_ID)
        self.world.replica_manager.end_loading()

    def create(self, *directories: bytes) -> list[int]:
        """In which directory each partition is made."""
        partitions = [
            PartitionRecord(
                partition_id=index, topic_id=TOPIC_ID, replicas=[NODE_ID], isr=[NODE_ID], leader=NODE_ID, partition_epoch=0,
                directories=[directory],
            )
            for index, directory in enumerate(directories)
        ]  # fmt: skip
        self.world.metadata.apply_committed([TopicRecord(name="a", topic_id=TOPIC_ID), *partitions])
        return [self.paths.index(self.world.partition("a", index).log.directory.parent) for index in range(len(directories))]


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[Directories]:
    directories = Directories(tmp_path)
    yield directories
    directories.logs.close_clean()


def test_a_replica_is_made_where_the_metadata_say_and_nobody_needs_to_be_told(directories: Directories) -> None:
    assert directories.create(IDS[1], IDS[1], IDS[1], IDS[0]) == [1, 1, 1, 0]
    assert directories.world.misplaced == []


@pytest.mark.parametrize("known", [UNASSIGNED_DIRECTORY, LOST_DIRECTORY, GONE])
def test_a_replica_that_may_be_anywhere_is_made_and_told(directories: Directories, known: bytes) -> None:
    places = directories.create(known, known)

    assert sorted(places) == [0, 1], "the one with fewer logs takes the next"
    assert directories.world.misplaced == [(TOPIC_ID, index, IDS[place]) for index, place in enumerate(places)]


@pytest.mark.parametrize(("known", "told"), [(UNASSIGNED_DIRECTORY, [(TOPIC_ID, 0, LOST_DIRECTORY)]), (IDS[0], [])])
def test_a_replica_that_no_disk_takes_is_told_as_lost_unless_the_metadata_say_where_it_is(
    directories: Directories, known: bytes, told: list[tuple[bytes, int, bytes]]
) -> None:
    """The controller learns of a failed directory too, which is enough if it knows that the replica is there."""
    for path in directories.paths:
        (path / "a-0").write_text("in the way")

    with pytest.raises(KafkaError) as refused:
        directories.create(known)

    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert directories.world.misplaced == told


def test_a_replica_that_is_found_elsewhere_is_told_with_each_change_until_the_metadata_say_so(directories: Directories) -> None:
    (place,) = directories.create(UNASSIGNED_DIRECTORY)
    told = (TOPIC_ID, 0, IDS[place])

    directories.world.change_partition("a", directories=[IDS[1 - place]])
    directories.world.change_partition("a", directories=[IDS[place]])

    assert directories.world.misplaced == [told, told]
    assert directories.world.partition("a").log.directory.parent == directories.paths[place], "nothing moves by itself"
