"""A replica moves to another log directory of its broker: what is copied, who is told when, and what becomes of requests meanwhile."""

from __future__ import annotations

import pytest

from broker.handlers.cluster import alter_replica_log_dirs, describe_log_dirs
from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.broker.replication.moves.moving import FIRST, IDS, SECOND, TOPIC_ID, Moving, batches_of
from tests.broker.replication.world import batch, completed, context, values
from tests.storage.conftest import delete_pending
from tests.support.clock import WALL_START_MS


@pytest.fixture
def moving() -> Moving:
    return Moving()


def test_a_replica_moves_with_every_byte_and_its_old_directory_goes(moving: Moving) -> None:
    moving.produce_many(300)
    batches = batches_of(moving.log)

    moving.move(SECOND)

    assert moving.place == SECOND and moving.future is None
    assert batches_of(moving.log) == batches
    assert (moving.log.high_watermark, moving.log.log_end_offset) == (300, 300)
    assert moving.directories() == ["first/a-0-delete", "second/a-0"]
    moving.produce("more")
    assert moving.log.log_end_offset == 301


def test_the_controller_is_told_before_the_copy_takes_over(moving: Moving) -> None:
    """KIP-858: were the target to fail, the controller would know whom it takes along."""
    moving.produce("x")

    moving.alter(SECOND)
    moving.run()

    assert moving.world.misplaced == [(TOPIC_ID, 0, IDS[SECOND])]
    assert moving.place == FIRST and moving.directories() == ["first/a-0", "second/a-0-future"]
    moving.accept()
    assert moving.place == FIRST
    moving.run()
    assert moving.place == SECOND
    assert len(moving.world.misplaced) == 1, "the metadata that say so are not contradicted meanwhile"


def test_what_is_appended_while_the_controller_decides_is_copied_too(moving: Moving) -> None:
    moving.produce_many(10)
    moving.alter(SECOND)
    moving.run()
    moving.produce_many(10)

    moving.accept()
    moving.run()

    assert moving.place == SECOND and moving.log.log_end_offset == 20


def test_a_consumer_that_waits_is_answered_from_the_new_directory(moving: Moving) -> None:
    moving.produce("x")
    moving.alter(SECOND)
    moving.run()
    waiting = moving.world.fetch("a", 1, max_wait_ms=60_000)
    held = moving.world.fetch("a", 0)

    moving.accept()
    moving.run()
    moving.produce("y")

    assert [values(read.records) for read in waiting] == [["y"]]
    assert [values(read.records) for read in held] == [["x"]], "what was read from the old one can still be sent"


def test_a_durable_produce_is_acknowledged_across_the_change(moving: Moving) -> None:
    """flush.messages=1: what was appended to the old log and not yet flushed is so in the new one."""
    moving.world.set_topic_config("a", "flush.messages", "1")
    moving.world.clock.advance(1)
    moving.alter(SECOND)
    moving.run()
    moving.accept()

    answers = moving.world.produce("a", batch("x"), acks=-1)
    assert answers == []
    moving.world.clock.advance(1)
    moving.run()

    assert moving.place == SECOND and [answer.error_code for answer in answers] == [ErrorCode.NONE]
    assert moving.log.durable_end_offset == moving.log.high_watermark == 1


def test_epochs_producers_and_the_log_start_come_along(moving: Moving) -> None:
    for sequence in range(30):
        moving.world.produce("a", batch("x", producer_id=9, producer_epoch=0, base_sequence=sequence))
    moving.log.set_log_start_offset(12)
    moving.stop()  # the next epoch begins, and nothing is written in it
    source = moving.log

    moving.move(SECOND)

    log = moving.log
    assert log is not source and log.log_start_offset == 12
    assert log.leader_epochs.entries() == source.leader_epochs.entries()
    (again,) = moving.world.produce("a", batch("x", producer_id=9, producer_epoch=0, base_sequence=29))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 29)


def test_what_a_copy_gets_after_a_cut_is_not_durable_after_a_kill(moving: Moving) -> None:
    """The checkpoint of its directory named it as durable up to the old end, though what is there now was never flushed."""
    moving.produce_many(50)
    moving.alter(SECOND)
    future = moving.future
    assert future is not None
    while future.log_end_offset < 50:
        moving.turn()
    future.flush()
    for work in moving.logs.take_checkpoints():
        work.run()
    moving.log.truncate_to(20)
    for count in range(100):
        moving.log.append_as_leader(batch(f"other{count}"), leader_epoch=5, now_ms=WALL_START_MS)

    moving.run()
    assert future.log_end_offset == 120
    moving.kill()

    assert moving.future is not None and moving.future.log_end_offset == 120
    assert moving.future.durable_end_offset <= 20


def test_a_copy_is_cut_where_the_log_is_cut(moving: Moving) -> None:
    """A follower's log, when a new leader has other records: by epochs, for it may have grown beyond the copy's end again."""
    moving.produce_many(50)
    moving.alter(SECOND)
    moving.run()
    future = moving.future
    assert future is not None and future.log_end_offset == 50

    moving.log.truncate_to(20)
    for count in range(100):
        moving.log.append_as_leader(batch(f"other{count}"), leader_epoch=5, now_ms=WALL_START_MS)
    moving.log.set_high_watermark(120)
    moving.accept()
    moving.run()

    assert moving.log is future
    assert values(b"".join(batches_of(future)))[19:22] == ["v" * 100, "other0", "other1"]
    assert future.log_end_offset == 120


def test_a_copy_begins_anew_when_the_log_starts_behind_it(moving: Moving) -> None:
    moving.produce_many(50)
    moving.alter(SECOND)
    moving.run()
    moving.log.truncate_fully_and_start_at(1_000)
    moving.produce("x")

    moving.accept()
    moving.run()

    assert moving.place == SECOND
    assert (moving.log.log_start_offset, moving.log.log_end_offset) == (1_000, 1_001)


def test_a_move_to_where_the_replica_is_ends_one_elsewhere(moving: Moving) -> None:
    """And the controller is told that it stays."""
    moving.produce("x")
    moving.alter(SECOND)
    moving.run()
    moving.commit_assignment()

    assert moving.alter(FIRST) is ErrorCode.NONE
    moving.run()

    assert moving.world.misplaced[-1] == (TOPIC_ID, 0, IDS[FIRST])
    assert moving.future is None and moving.place == FIRST
    assert moving.directories() == ["first/a-0", "second/a-0-delete"]
    moving.move(SECOND)
    assert moving.place == SECOND


def test_a_move_back_waits_until_the_old_directory_has_left(moving: Moving) -> None:
    moving.produce("x")
    moving.alter(SECOND)
    moving.run()
    moving.accept()
    moving.world.clock.advance(1)
    assert moving.place == SECOND and moving.logs.is_leaving("a", 0)

    assert moving.alter(FIRST) is ErrorCode.NONE
    assert moving.future is None
    moving.run()
    moving.accept()
    moving.run()

    assert moving.place == FIRST and not moving.logs.is_leaving("a", 0)
    assert moving.directories() == ["first/a-0", "first/a-0-delete", "second/a-0-delete"]
    delete_pending(moving.logs, WALL_START_MS + 1)
    delete_pending(moving.logs, WALL_START_MS + 10_000_000)
    assert moving.directories() == ["first/a-0"]


def test_what_cannot_be_moved_is_refused_as_by_kafka(moving: Moving) -> None:
    assert moving.alter("/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert moving.alter(SECOND, "unknown") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert moving.alter(SECOND, "t" * 249) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert moving.alter(FIRST) is ErrorCode.NONE
    assert moving.directories() == ["first/a-0"]
    moving.world.create_topic("b", replicas=(2,), leader=2)
    assert moving.alter(SECOND, "b") is ErrorCode.REPLICA_NOT_AVAILABLE


def test_a_directory_that_was_wanted_before_the_partition_came_is_where_it_is_made(moving: Moving) -> None:
    assert moving.alter(FIRST, "late") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    moving.world.create_topic("late")

    assert moving.world.partition("late").log.log_dir == str(FIRST), "though the other has fewer logs"


def test_a_deleted_topic_takes_its_copy_along(moving: Moving) -> None:
    moving.produce("x")
    moving.alter(SECOND)
    moving.run()

    moving.world.delete_topic("a")
    moving.run()

    assert moving.directories() == ["first/a-0-delete", "second/a-0-delete"]
    assert moving.logs.all_logs() == [] and not moving.logs.is_leaving("a", 0)


def test_a_clean_stop_right_after_the_change_leaves_one_directory(moving: Moving) -> None:
    """Kafka would not start with two."""
    moving.produce("x")
    moving.alter(SECOND)
    moving.run()
    moving.accept()
    moving.world.clock.advance(1)
    assert moving.place == SECOND and moving.directories() == ["first/a-0", "second/a-0"]

    moving.world.replica_manager.stop()
    moving.logs.close_clean(broker_epoch=1)

    assert moving.directories() == ["first/a-0-delete", "second/a-0"]


def test_describe_log_dirs_shows_the_copy_and_its_lag(moving: Moving) -> None:
    moving.produce_many(5)
    moving.alter(SECOND)
    moving.run()
    moving.produce_many(2)

    answer = completed(describe_log_dirs.build(moving.world.services())(context(35, 1), DescribeLogDirsRequest(topics=None)))

    found = [(each.offset_lag, each.is_future_key) for result in answer.results for topic in result.topics for each in topic.partitions]
    assert found == [(0, False), (2, True)]


@pytest.mark.parametrize("version", [1, 2])
def test_the_answer_names_every_partition_and_the_last_wish_counts(moving: Moving, version: int) -> None:
    wishes = [(SECOND, "a", 0), (FIRST, "b", 3), (FIRST, "a", 1), (FIRST, "a", 0)]
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path=str(path), topics=[AlterReplicaLogDirTopic(name=name, partitions=[index])])
            for path, name, index in wishes
        ]
    )

    answer = completed(alter_replica_log_dirs.build(moving.world.services())(context(34, version), request))

    found = {(topic.topic_name, each.partition_index): each.error_code for topic in answer.results for each in topic.partitions}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {("a", 0): ErrorCode.NONE, ("b", 3): unknown, ("a", 1): unknown}
    assert moving.future is None


def test_a_rate_that_is_set_while_a_copy_goes_on_bounds_it(moving: Moving) -> None:
    """replica.alter.log.dirs.io.max.bytes.per.second, over the quota's window of 11 s."""
    moving.produce_many(40, size=100_000)
    moving.world.replica_manager.quotas.moves.bytes_per_second = 1_000_000
    before_ms = moving.world.clock.monotonic_ms()

    moving.move(SECOND)

    assert moving.place == SECOND
    assert 2_500 <= moving.world.clock.monotonic_ms() - before_ms <= 5_000


def test_nothing_moves_to_a_cordoned_directory(moving: Moving) -> None:
    """Not even by name to where it is, as in Kafka."""
    manager = moving.world.replica_manager.moves
    moving.logs.cordon([str(FIRST), str(SECOND)])

    refused = [manager.alter("a", 0, str(path)) for path in (FIRST, SECOND)]
    moving.logs.cordon([str(FIRST)])
    accepted = manager.alter("a", 0, str(SECOND))

    assert refused == [ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 2
    assert accepted is ErrorCode.NONE and moving.future is not None
