"""DelayedFetch: a parked fetch wakes exactly when it should. The case letters are Kafka's."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.replication.fetch.fetch_data import FetchIsolation, FetchTarget
from protocol.errors import ErrorCode
from storage.errors import StorageError
from tests.broker.replication.world import World, batch, values

WAIT_MS = 500
CLOSED = -1  # a SegmentFile's descriptor once nobody holds it


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create_topic("a", partitions=3)
    return world


def test_min_bytes_are_counted_over_all_partitions(world: World) -> None:
    """Case G."""
    size = len(batch("x" * 100))
    targets = [FetchTarget("a", index, 0, 1 << 20) for index in range(3)]
    answers = world.fetch_all(targets, max_wait_ms=WAIT_MS, min_bytes=3 * size)

    world.produce("a", batch("x" * 100), index=0)
    world.produce("a", batch("x" * 100), index=2)
    assert answers == []
    world.produce("a", batch("x" * 100), index=2)

    assert [len(read.records) for read in answers] == [size, 0, 2 * size]
    assert world.replica_manager.fetch_purgatory.size == 0


def test_bytes_beyond_a_partitions_own_limit_do_not_count(world: World) -> None:
    """Case G."""
    size = len(batch("x" * 100))
    targets = [FetchTarget("a", index, 0, size) for index in range(2)]
    answers = world.fetch_all(targets, max_wait_ms=WAIT_MS, min_bytes=2 * size)

    world.produce("a", batch("x" * 100), index=0)
    world.produce("a", batch("x" * 100), index=0)
    assert answers == []
    world.produce("a", batch("x" * 100), index=1)

    assert len(answers) == 2


def test_bytes_that_were_there_when_it_was_parked_count(world: World) -> None:
    size = len(batch("x" * 100))
    world.produce("a", batch("x" * 100), index=0)
    targets = [FetchTarget("a", index, 0, 1 << 20) for index in range(2)]
    answers = world.fetch_all(targets, max_wait_ms=WAIT_MS, min_bytes=2 * size)
    assert answers == []

    world.produce("a", batch("x" * 100), index=1)

    assert [len(read.records) for read in answers] == [size, size]


def test_too_few_bytes_are_answered_when_the_time_is_over(world: World) -> None:
    answers = world.fetch("a", 0, max_wait_ms=WAIT_MS, min_bytes=1 << 20)
    world.produce("a", batch("x"))
    assert answers == []

    world.clock.advance(WAIT_MS)

    assert values(answers[0].records) == ["x"]


def test_fetch_that_reaches_into_a_newer_segment_does_not_wait_for_more(tmp_path: Path) -> None:
    """Case F: a read ends with its segment, so its bytes would never be enough."""
    world = World(tmp_path)
    world.create_topic("a")
    world.produce("a", batch("old"))
    answers = world.fetch("a", 0, max_wait_ms=WAIT_MS, min_bytes=1 << 20)
    world.partition("a").log.roll(world.clock.now_ms())
    assert answers == []

    world.produce("a", batch("new"))

    assert values(answers[0].records) == ["old"]


def test_truncation_below_the_fetch_offset_is_told_at_once(world: World) -> None:
    """Case F."""
    world.produce("a", batch("x", "y"))
    world.produce("a", batch("z"))
    answers = world.fetch("a", 3, max_wait_ms=WAIT_MS)
    partition = world.partition("a")

    partition.log.truncate_to(2)
    world.replica_manager.on_progress(partition)

    assert answers[0].error_code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_between_the_high_watermark_and_the_log_end_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", replicas=(1, 2))
    world.produce("a", batch("x"))
    answers = world.fetch("a", 1, max_wait_ms=WAIT_MS)
    world.produce("a", batch("y"))
    assert answers == []

    world.follower_fetch(2, "a", 2)

    assert values(answers[0].records) == ["y"]


def test_lost_leadership_is_told_at_once(world: World) -> None:
    """Case A."""
    answers = world.fetch("a", 0, max_wait_ms=WAIT_MS)

    world.change_partition("a", leader=-1)

    assert answers[0].error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_follower_removed_from_the_replicas_is_told_at_once(tmp_path: Path) -> None:
    """Case B."""
    world = World(tmp_path)
    world.create_topic("a", replicas=(1, 2))
    target = FetchTarget("a", 0, 0, 1000)
    answers = world.fetch_all([target], replica_id=2, isolation=FetchIsolation.LOG_END, max_wait_ms=WAIT_MS)

    world.change_partition("a", replicas=[1], isr=[1])

    assert answers[0].error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_failed_log_directory_is_told_at_once(world: World, tmp_path: Path) -> None:
    """Case D."""
    answers = world.fetch("a", 0, max_wait_ms=WAIT_MS)

    world.replica_manager.fail_log_dir(tmp_path / "a-0", StorageError("EIO"))

    assert answers[0].error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.failed_log_dirs == [tmp_path]


def test_newer_leader_epoch_is_told_at_once(world: World) -> None:
    """Case E."""
    answers = world.fetch_all([FetchTarget("a", 0, 0, 1000, current_leader_epoch=0)], max_wait_ms=WAIT_MS)

    world.change_partition("a", leader=-1)

    assert answers[0].error_code is ErrorCode.FENCED_LEADER_EPOCH


def test_divergence_after_a_truncation_is_told_at_once(world: World) -> None:
    """Case H."""
    world.produce("a", batch("x", "y"))
    world.produce("a", batch("z"))
    answers = world.fetch_all([FetchTarget("a", 0, 3, 1000, last_fetched_epoch=0)], max_wait_ms=WAIT_MS)
    partition = world.partition("a")
    assert answers == []

    partition.log.truncate_to(2)
    world.replica_manager.on_progress(partition)

    diverging = answers[0].diverging_epoch
    assert diverging is not None and (diverging.epoch, diverging.end_offset) == (0, 2)


def test_event_of_another_partition_does_not_wake_it(world: World) -> None:
    answers = world.fetch("a", 0, max_wait_ms=WAIT_MS)

    world.produce("a", batch("x"), index=1)

    assert answers == []
    assert world.replica_manager.fetch_purgatory.size == 1


def test_parked_fetch_holds_no_segment_file_open(world: World) -> None:
    """It is read once more when it completes; what it saw when it came is given back."""
    world.produce("a", batch("x"))
    log = world.partition("a").log
    segment_file = log.segments.active.share_file()

    world.fetch("a", 0, max_wait_ms=WAIT_MS, min_bytes=1 << 20)
    log.abandon()
    assert segment_file.fd != CLOSED
    segment_file.release()

    assert segment_file.fd == CLOSED


def test_one_append_to_two_partitions_is_given_to_a_waiting_fetch_together(world: World) -> None:
    targets = [FetchTarget("a", index, 0, 1000) for index in range(2)]
    answers = world.fetch_all(targets, max_wait_ms=WAIT_MS)

    world.replica_manager.append([("a", 0, batch("x")), ("a", 1, batch("y"))], acks=1, timeout_ms=0, on_done=lambda results: None)

    assert [values(read.records) for read in answers] == [["x"], ["y"]]
