"""What waits for a partition while its topic is deleted, or while retention deletes what it waits for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker.replication.fetch.fetch_data import FetchTarget
from config.topic import LogConfig
from protocol.errors import ErrorCode
from storage.errors import StorageError
from storage.log_manager import LogManager
from tests.broker.replication.world import World, batch, values

WAIT_MS = 60_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("acks", [1, -1])
def test_produce_that_waits_for_the_disk_is_answered_when_its_topic_is_deleted(world: World, acks: int) -> None:
    world.create_topic("a", flush_messages="1")
    answers = world.produce("a", batch("x"), acks=acks)
    assert answers == [] and len(world.executor.pending) == 1

    world.delete_topic("a")
    at_once = [answer.error_code for answer in answers]
    world.executor.run()

    assert at_once == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(answers) == 1 and world.replica_manager.produce_purgatory.size == 0


def test_produce_that_waits_is_told_of_the_new_leader_when_its_partition_moves_to_other_brokers(world: World) -> None:
    """The topic is still there, so clients ask for its leader anew."""
    world.create_topic("a", replicas=(1, 2))
    answers = world.produce("a", batch("x"), acks=-1)
    waiting = list(answers)

    world.change_partition("a", replicas=[2, 3], isr=[2, 3], leader=2)
    world.clock.advance(0)

    assert waiting == [] and [answer.error_code for answer in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_topic_that_is_made_anew_is_not_acknowledged_by_the_old_ones_flush(world: World) -> None:
    world.create_topic("a", flush_messages="1")
    world.produce("a", batch("x", "x"), acks=-1)
    world.delete_topic("a")
    (world.logs.directory / "a-0").rename(world.logs.directory / "deleted")
    world.create_topic("a", flush_messages="1")
    answers = world.produce("a", batch("y"), acks=-1)

    world.executor.run()
    assert answers == []
    world.executor.run()

    assert [answer.base_offset for answer in answers] == [0]


@pytest.mark.parametrize("min_bytes", [1, 1 << 20])
def test_fetch_that_waits_is_answered_when_a_topic_of_it_is_deleted(world: World, min_bytes: int) -> None:
    """DelayedFetch's case C."""
    world.create_topic("a")
    world.create_topic("b")
    answers = world.fetch_all([FetchTarget("a", 0, 0, 1000), FetchTarget("b", 0, 0, 1000)], max_wait_ms=WAIT_MS, min_bytes=min_bytes)

    world.delete_topic("a")

    assert [read.error_code for read in answers] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert (world.replica_manager.fetch_purgatory.size, world.clock.pending_timers) == (0, [])


def test_fetch_that_waits_below_the_new_log_start_is_told_at_once(world: World) -> None:
    """It waits for more bytes than there are from offset 0; then retention deletes offset 0."""
    world.create_topic("a")
    world.produce("a", batch("x"))
    partition = world.partition("a")
    partition.log.roll(world.clock.now_ms())
    answers = world.fetch("a", 0, max_wait_ms=WAIT_MS, min_bytes=1 << 20)
    assert answers == []

    partition.log.set_log_start_offset(1)
    partition.log.delete_old_segments(world.clock.now_ms())
    produced = world.produce("a", batch("y"))

    assert [result.error_code for result in produced] == [ErrorCode.NONE]
    assert [read.error_code for read in answers] == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_slice_that_is_being_sent_outlives_its_segment(world: World) -> None:
    world.create_topic("a", file_delete_delay_ms="0")
    world.produce("a", batch("x"))
    reads = world.fetch("a", 0)
    log = world.partition("a").log

    log.roll(world.clock.now_ms())
    log.set_log_start_offset(1)
    log.delete_old_segments(world.clock.now_ms())
    for deletion in log.deletions.take_due(world.clock.now_ms()):
        for path in deletion.paths:
            path.unlink()

    assert values(reads[0].records) == ["x"]


@pytest.mark.parametrize("partitions", [1, 6])
def test_flush_that_runs_while_its_topic_is_deleted_harms_nobody(tmp_path: Path, partitions: int) -> None:
    """The directory that it is to synchronise has another name by then. One file is synchronised by itself, many by one call."""
    log_manager = LogManager([tmp_path / "data"], random_source=random.Random(1))
    log_manager.open(config_of=lambda name: LogConfig(), now_ms=0)
    world = World(tmp_path, logs=log_manager)
    world.create_topic("a", partitions=partitions, flush_messages="1")
    world.create_topic("b", flush_messages="1")
    answers = [world.produce("a", batch("x"), index=index, acks=-1) for index in range(partitions)]

    world.delete_topic("a")
    world.executor.run()
    world.executor.run()
    others = world.produce("b", batch("y"), acks=-1)
    world.executor.run()

    assert world.failed_log_dirs == []
    assert {answer[0].error_code for answer in answers} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert others[0].error_code is ErrorCode.NONE


@pytest.fixture
def real_world(tmp_path: Path) -> World:
    """On a log manager whose directories leave off the loop."""
    log_manager = LogManager([tmp_path / "data"], random_source=random.Random(1))
    log_manager.open(config_of=lambda name: LogConfig(), now_ms=0)
    return World(tmp_path, logs=log_manager)


def test_topic_made_anew_waits_for_the_old_ones_directory(real_world: World) -> None:
    """Taking its entries out of the checkpoints waits for the disk, and the loop does not."""
    world = real_world
    world.create_topic("a")
    world.produce("a", batch("x"))
    world.delete_topic("a")
    world.create_topic("a")
    world.clock.advance(1)
    early = world.produce("a", batch("y"))

    world.executor.run()
    world.clock.advance(1)
    late = world.produce("a", batch("z"))

    assert [answer.error_code for answer in early] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [(answer.error_code, answer.base_offset) for answer in late] == [(ErrorCode.NONE, 0)]


def test_deletion_is_over_when_the_directories_are_out_of_the_way(real_world: World, tmp_path: Path) -> None:
    world = real_world
    over: list[list[str]] = []

    def note() -> None:
        over.append(sorted(path.name.partition(".")[0] for path in (tmp_path / "data").iterdir() if path.is_dir()))

    world.create_topic("a", partitions=2)
    world.create_topic("b")
    world.delete_topic("a")
    world.delete_topic("b")
    world.replica_manager.when_removed(note)
    before = list(over)
    world.executor.run()
    world.replica_manager.when_removed(note)

    assert before == []
    assert over == [["a-0", "a-1", "b-0"]] * 2
    assert all(path.name.endswith("-delete") for path in (tmp_path / "data").iterdir() if path.is_dir())


def test_disk_that_refuses_a_deletion_takes_its_directory_offline(real_world: World, tmp_path: Path) -> None:
    world = real_world
    for name in ("a", "b"):
        world.create_topic(name)
    world.delete_topic("a")
    over: list[bool] = []
    world.replica_manager.when_removed(lambda: over.append(True))

    world.executor.run(StorageError("no", path=tmp_path / "data"))
    refused = world.produce("b", batch("x"))

    assert over == [True]
    assert world.failed_log_dirs == [tmp_path / "data"]
    assert [answer.error_code for answer in refused] == [ErrorCode.KAFKA_STORAGE_ERROR]


@pytest.mark.parametrize("partitions", [1, 6])
def test_segment_that_somebody_removed_takes_its_directory_offline(real_world: World, tmp_path: Path, partitions: int) -> None:
    """Before anything more is acknowledged as durable. One file is synchronised by itself, many by one call."""
    world = real_world
    world.create_topic("a", partitions=partitions, flush_messages="1")
    first = [world.produce("a", batch("x"), index=index) for index in range(partitions)]
    world.executor.run()
    world.executor.run()
    (tmp_path / "data" / "a-0" / "00000000000000000000.log").unlink()
    world.clock.advance(1000)

    second = [world.produce("a", batch("y"), index=index) for index in range(partitions)]
    world.executor.run()
    world.executor.run()

    assert {answer[0].error_code for answer in first} == {ErrorCode.NONE}
    assert second[0][0].error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.failed_log_dirs == [tmp_path / "data"]
