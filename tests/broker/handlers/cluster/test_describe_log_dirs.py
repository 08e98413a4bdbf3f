"""What DescribeLogDirs tells of the directories and the replicas in them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest

from broker.handlers.cluster import describe_log_dirs
from broker.loop.turns import ELEMENTS_AT_ONCE
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse
from protocol.messages.stored.metadata_records import FeatureLevelRecord
from storage.errors import StorageError
from storage.log_manager import LogManager
from tests.broker.replication.world import World, batch, context
from tests.support.clock import WALL_START_MS
from tests.support.turns import finished, run

VERSIONS = range(1, 6)
REPLICAS = ELEMENTS_AT_ONCE + 100


class Directories:
    """A broker with two log directories."""

    def __init__(self, root: Path) -> None:
        self.paths = [root / "first", root / "second"]
        self.logs = LogManager(self.paths, random_source=random.Random(1))
        self.logs.lock()
        self.world = World(root, logs=self.logs)
        self.world.replica_manager.end_loading()

    def send(self, version: int, topics: dict[str, list[int]] | None) -> Any:
        asked = None if topics is None else [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
        return describe_log_dirs.build(self.world.services())(context(35, version), DescribeLogDirsRequest(topics=asked))

    def describe(self, topics: dict[str, list[int]] | None = None, version: int = 4) -> DescribeLogDirsResponse:
        answer: DescribeLogDirsResponse = finished(self.send(version, topics))
        return answer


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[Directories]:
    directories = Directories(tmp_path)
    yield directories
    directories.logs.close_clean()


def replicas_in(answer: DescribeLogDirsResponse) -> list[set[tuple[str, int]]]:
    return [{(topic.name, each.partition_index) for topic in result.topics for each in topic.partitions} for result in answer.results]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_directory_tells_its_replicas_sizes_and_volume(directories: Directories, version: int) -> None:
    directories.world.create_topic("a", partitions=4)
    directories.world.partition("a", 1).log.append_as_leader(batch("x", "y"), leader_epoch=0, now_ms=WALL_START_MS)
    status = os.statvfs(directories.paths[0])

    answer = directories.describe(version=version)

    assert [(each.log_dir, each.error_code) for each in answer.results] == [(str(path), ErrorCode.NONE) for path in directories.paths]
    assert sorted(replica for found in replicas_in(answer) for replica in found) == [("a", index) for index in range(4)]
    sizes = {each.partition_index: each.partition_size for result in answer.results for each in result.topics[0].partitions}
    assert sizes == {0: 0, 1: len(batch("x", "y")), 2: 0, 3: 0}
    total_bytes = status.f_blocks * status.f_frsize if version >= 4 else -1
    assert {each.total_bytes for each in answer.results} == {total_bytes}
    assert all(each.usable_bytes <= total_bytes and (each.usable_bytes > 0) == (version >= 4) for each in answer.results)


def test_replicas_that_were_asked_for_are_told_and_no_others(directories: Directories) -> None:
    directories.world.create_topic("a", partitions=2)
    directories.world.create_topic("b")

    assert set().union(*replicas_in(directories.describe({"a": [1, 1, 7], "missing": [0]}))) == {("a", 1)}
    assert replicas_in(directories.describe({})) == [set(), set()]


def test_a_replica_behind_its_high_watermark_tells_how_far_and_none_while_it_is_not_served(directories: Directories) -> None:
    directories.world.create_topic("a")
    log = directories.world.partition("a").log
    log.append_as_leader(batch("x", "y"), leader_epoch=0, now_ms=WALL_START_MS)
    log.set_high_watermark(2)
    directories.logs.create_log("waits", 0, bytes(15) + b"\x09", log.config, 0)

    log.truncate_to(0)
    log.high_watermark = 2
    told = {topic.name: topic.partitions[0].offset_lag for result in directories.describe().results for topic in result.topics}

    assert told == {"a": 2, "waits": -1}


def test_a_directory_that_has_failed_is_an_error_without_replicas(directories: Directories) -> None:
    directories.world.create_topic("a", partitions=2)

    directories.logs.mark_offline(directories.paths[1], StorageError("broken", path=directories.paths[1]))
    first, second = directories.describe().results

    assert (first.error_code, len(first.topics)) == (ErrorCode.NONE, 1)
    assert (second.error_code, second.topics, second.total_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, [], -1)
    assert second.log_dir == str(directories.paths[1])


def test_very_many_replicas_are_described_in_turns_and_a_directory_that_fails_meanwhile_is_an_error(directories: Directories) -> None:
    directories.world.create_topic("a", partitions=REPLICAS)
    directories.world.clock.advance(1000)

    outcome = directories.send(3, None)

    assert isinstance(outcome, GeneratorType)
    answer, pieces_count = run(outcome)
    assert len(set().union(*replicas_in(answer))) == REPLICAS
    assert pieces_count >= REPLICAS - ELEMENTS_AT_ONCE

    outcome = directories.send(4, None)
    assert isinstance(outcome, GeneratorType)
    directories.logs.mark_offline(directories.paths[1], StorageError("broken", path=directories.paths[1]))
    assert [each.error_code for each in finished(outcome).results] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_cordoned_directory_is_told_where_the_cluster_knows_of_it(directories: Directories) -> None:
    directories.logs.cordon([str(directories.paths[1])])

    def cordoned(level: int) -> list[bool]:
        directories.world.metadata.apply_committed([FeatureLevelRecord(name="metadata.version", feature_level=level)])
        return [result.is_cordoned for result in directories.describe(version=5).results]

    assert cordoned(29) == [False, False]
    assert cordoned(30) == [False, True]
