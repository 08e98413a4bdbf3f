"""flush.messages as group commit: who waits for the disk, how rounds gather, and what a failed fsync means."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from broker.replication.group_commit import SHORTAGE_WAIT_MS
from protocol.errors import ErrorCode
from storage import log_opener
from storage.errors import StorageError
from storage.flush import FlushState
from tests.broker.replication.world import World, batch, values


def test_acknowledgement_and_high_watermark_wait_for_the_disk(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", flush_messages="1")

    leader_only = world.produce("a", batch("x"), acks=1)
    all_in_sync = world.produce("a", batch("y"), acks=-1)
    assert leader_only == [] and all_in_sync == []
    assert world.partition("a").log.high_watermark == 0
    world.executor.run()
    world.executor.run()

    assert leader_only[0].base_offset == 0
    assert all_in_sync[0].base_offset == 1
    assert world.partition("a").log.high_watermark == 2


def test_acks_zero_does_not_wait(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", flush_messages="1")

    assert len(world.produce("a", batch("x"), acks=0)) == 1


def test_appends_during_a_round_share_the_next_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", partitions=10, flush_messages="1")
    first = world.produce("a", batch("x"), index=0)
    later = [world.produce("a", batch("x"), index=index) for index in range(10)]
    assert len(world.executor.pending) == 1

    world.executor.run()
    assert len(first) == 1 and not any(later)
    assert len(world.executor.pending) == 1
    world.executor.run()

    assert all(later)
    assert world.executor.pending == []


def test_consumer_waits_for_the_disk_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", flush_messages="1")
    waiting = world.fetch("a", 0, max_wait_ms=500)
    world.produce("a", batch("x"))
    assert waiting == []

    world.executor.run()

    assert values(waiting[0].records) == ["x"]


def test_flush_messages_above_one_flushes_when_that_many_are_dirty_and_nobody_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", flush_messages="3")

    answers = world.produce("a", batch("0", "1"))
    assert len(answers) == 1 and world.executor.pending == []
    world.produce("a", batch("2"))
    world.executor.run()

    assert world.partition("a").log.durable_end_offset == 3


def test_failed_fsync_takes_the_log_directory_offline(tmp_path: Path) -> None:
    """An fsync is never retried: the kernel may have dropped the pages it could not write."""
    world = World(tmp_path)
    world.create_topic("a", partitions=2, flush_messages="1")
    answers = world.produce("a", batch("x"))

    world.executor.run(StorageError("EIO", path=tmp_path))

    assert answers[0].error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.fetch("a", 0, index=1)[0].error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.failed_log_dirs == [tmp_path]
    assert world.produce("a", batch("y"), index=1)[0].error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.executor.pending == []


def shortage_in(directory: Path) -> StorageError:
    error = StorageError("no", path=directory)
    error.__cause__ = OSError(errno.EMFILE, "Too many open files")
    return error


def test_a_round_that_lacks_descriptors_is_made_again(tmp_path: Path) -> None:
    """No disk is at fault, and no fsync has failed: the log directory stays online, and who waits for it is answered."""
    world = World(tmp_path)
    world.create_topic("a", partitions=2, flush_messages="1")
    answers = world.produce("a", batch("x"))
    flushed: list[None] = []
    world.replica_manager.when_flushed(lambda: flushed.append(None))

    world.executor.run(shortage_in(tmp_path))
    assert answers == [] and flushed == [] and world.failed_log_dirs == []
    later = world.produce("a", batch("y"), index=1)
    world.clock.advance(SHORTAGE_WAIT_MS)
    world.executor.run()

    assert [each.error_code for each in (*answers, *later)] == [ErrorCode.NONE] * 2
    assert flushed == [None]
    assert world.executor.pending == []


def test_a_round_that_cannot_open_a_file_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed segment's file is opened to be synchronised."""
    world = World(tmp_path)
    world.create_topic("a", flush_messages="1")

    def fail(*arguments: object) -> None:
        raise OSError(errno.ENFILE, "Too many open files in system")

    with monkeypatch.context() as patch:
        patch.setattr(FlushState, "take", fail)
        answers = world.produce("a", batch("x"))
    assert answers == [] and world.executor.pending == []
    world.clock.advance(SHORTAGE_WAIT_MS)
    world.executor.run()

    assert answers[0].error_code is ErrorCode.NONE


def test_topic_deleted_while_its_round_runs_is_let_go(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", flush_messages="1")
    answers = world.produce("a", batch("x"))

    world.delete_topic("a")
    world.executor.run()

    assert answers[0].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_when_flushed_calls_back_after_all_that_was_requested_before_even_if_more_keeps_coming(tmp_path: Path) -> None:
    """The recovery point checkpoint follows a flush; a busy topic with flush.messages=1 must not starve it."""
    world = World(tmp_path)
    world.create_topic("a", flush_messages="1")
    world.create_topic("b")
    calls: list[str] = []
    world.produce("b", batch("x"))
    world.produce("a", batch("x"))
    world.replica_manager.request_flush([world.partition("b")])
    world.replica_manager.when_flushed(lambda: calls.append("flushed"))
    world.produce("a", batch("y"))

    world.executor.run()
    assert calls == []
    world.produce("a", batch("z"))
    world.executor.run()

    assert calls == ["flushed"]
    assert world.partition("b").log.durable_end_offset == 1
    assert len(world.executor.pending) == 1


def test_turning_flushing_off_releases_who_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", flush_messages="1")
    answers = world.produce("a", batch("x"))

    world.set_topic_config("a", "flush.messages", "1000")

    assert answers[0].error_code is ErrorCode.NONE


def test_acknowledged_records_are_there_after_a_kill(tmp_path: Path) -> None:
    world = World(tmp_path)
    topic_id = world.create_topic("a", flush_messages="1")
    answers = world.produce("a", batch("x", "y"))
    world.executor.run()
    assert len(answers) == 1

    log = world.partition("a").log
    reopened = log_opener.open_log(
        log.directory, "a", 0, topic_id, log.config, now_ms=world.clock.now_ms(), recovery_point=log.recovery_point
    )

    read = reopened.read(0, max_bytes=1 << 20, end_offset=reopened.log_end_offset)
    assert values(read) == ["x", "y"]


def test_very_many_partitions_take_several_rounds_and_their_waiters_hear_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To take thousands of logs into one round held the loop for 40 ms."""
    monkeypatch.setattr("broker.replication.group_commit.ROUND_PARTITIONS_MAX", 3)
    world = World(tmp_path)
    world.create_topic("a", partitions=10)
    heard: list[str] = []
    for index in range(8):
        world.produce("a", batch("x"), index=index)
    world.replica_manager.request_flush([world.partition("a", index) for index in range(5)])  # the first round takes 3 of them
    world.replica_manager.when_flushed(lambda: heard.append("early"))
    world.replica_manager.request_flush([world.partition("a", index) for index in range(8)])
    world.replica_manager.when_flushed(lambda: heard.append("late"))

    told: list[tuple[int, list[str]]] = []
    while world.executor.pending:
        world.executor.run()
        durable_count = sum(world.partition("a", index).log.durable_end_offset for index in range(8))
        told.append((durable_count, list(heard)))

    assert told == [(3, []), (5, ["early"]), (6, ["early"]), (8, ["early", "late"])]


def test_who_waits_hears_in_time_though_a_round_lacks_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partitions are asked for again while it runs, too."""
    monkeypatch.setattr("broker.replication.group_commit.ROUND_PARTITIONS_MAX", 3)
    world = world_with_dirty_logs(tmp_path, 6)
    heard: list[int] = []
    world.replica_manager.request_flush([world.partition("a", index) for index in range(5)])
    world.replica_manager.when_flushed(lambda: heard.append(5))
    world.replica_manager.request_flush([world.partition("a", index) for index in (0, 5)])
    world.replica_manager.when_flushed(lambda: heard.append(6))

    world.executor.run(shortage_in(tmp_path))
    world.clock.advance(SHORTAGE_WAIT_MS)
    told: list[tuple[int, list[int]]] = []
    while world.executor.pending:
        world.executor.run()
        told.append((sum(world.partition("a", index).log.durable_end_offset for index in range(6)), list(heard)))

    assert told == [(3, []), (6, [5, 6])]


def world_with_dirty_logs(directory: Path, count: int) -> World:
    """A topic named a of so many partitions, with a batch in each."""
    world = World(directory)
    world.create_topic("a", partitions=count)
    for index in range(count):
        world.produce("a", batch("x"), index=index)
    return world


def test_a_round_after_a_large_one_begins_in_a_later_turn_with_all_that_was_asked_for_till_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a round of 200 logs and the begin of the next took 7 ms of one turn together."""
    monkeypatch.setattr("broker.replication.group_commit.SMALL_ROUND_PARTITIONS_MAX", 2)
    world = world_with_dirty_logs(tmp_path, 5)
    heard: list[str] = []
    world.replica_manager.request_flush([world.partition("a", index) for index in range(3)])
    world.replica_manager.request_flush([world.partition("a", 3)])

    world.executor.run()
    assert [world.partition("a", index).log.durable_end_offset for index in range(5)] == [1, 1, 1, 0, 0]
    assert world.executor.pending == []
    world.replica_manager.request_flush([world.partition("a", 4)])
    assert world.executor.pending == []
    world.replica_manager.when_flushed(lambda: heard.append("flushed"))
    world.clock.advance(0)
    world.executor.run()

    assert [world.partition("a", index).log.durable_end_offset for index in range(5)] == [1] * 5
    assert heard == ["flushed"]
    assert world.executor.pending == []


def test_who_asks_between_two_rounds_when_nothing_is_left_hears_in_the_next_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.replication.group_commit.SMALL_ROUND_PARTITIONS_MAX", 2)
    world = world_with_dirty_logs(tmp_path, 3)
    heard: list[str] = []
    world.replica_manager.request_flush([world.partition("a", index) for index in range(3)])
    world.executor.run()

    world.replica_manager.when_flushed(lambda: heard.append("flushed"))
    world.clock.advance(0)

    assert heard == ["flushed"]
    assert world.executor.pending == []
