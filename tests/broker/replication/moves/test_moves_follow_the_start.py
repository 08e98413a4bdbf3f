"""DeleteRecords while a replica moves to another log directory: its copy counts, and follows the log's start in every phase."""

from __future__ import annotations

import pytest

from broker.handlers.produce_fetch import delete_records
from broker.loop.deferred import Deferred
from broker.replication.moves.log_copy import READ_BYTES
from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from storage.log import Log
from tests.broker.replication.moves.moving import FIRST, SECOND, Moving, batches_of
from tests.broker.replication.world import batch, context, values
from tests.simulation.disk import ProcessDiedError
from tests.storage.conftest import write_checkpoints
from tests.support.clock import WALL_START_MS
from tests.support.turns import finished

pytestmark = pytest.mark.long("a crash after any call")

TIMEOUT_MS = 1_000
SLOWLY = 1.0  # bytes a second: the first chunk goes at once, and the next one never
FAST = 1e9
SEVERAL_CHUNKS = 12  # records of LARGE
LARGE = 100_000
CALLS_MIN = 100  # of the disk, that the story of deletions makes


class Deletion:
    """A DeleteRecords request for a-0, as it is answered in the end."""

    def __init__(self, moving: Moving, offset: int) -> None:
        topics = [DeleteRecordsTopic(name="a", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])]
        handle = delete_records.build(moving.world.services())
        self._outcome = finished(handle(context(21, 2), DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)))

    @property
    def is_waiting(self) -> bool:
        return isinstance(self._outcome, Deferred) and not self._outcome.is_done

    @property
    def answer(self) -> tuple[int, int]:
        """Error code and low watermark."""
        response = self._outcome.take() if isinstance(self._outcome, Deferred) else self._outcome
        (result,) = response.topics[0].partitions
        return result.error_code, result.low_watermark


def throttle(moving: Moving) -> None:
    moving.world.replica_manager.quotas.moves.bytes_per_second = SLOWLY


def begin_copy_of(moving: Moving) -> Log:
    """The copy of a-0, of which a first chunk is there; the throttle keeps the rest away."""
    moving.produce_many(SEVERAL_CHUNKS, LARGE)
    throttle(moving)
    moving.alter(SECOND)
    future = moving.future
    assert future is not None
    for _ in range(20):
        moving.turn()
    assert 0 < future.log_end_offset < SEVERAL_CHUNKS - 2
    return future


def queue_behind_another(**settings: object) -> tuple[Moving, Log]:
    """The copy of a-0, which waits for the move of b-0; that one is throttled for good."""
    moving = Moving(num_replica_alter_log_dirs_threads=1, **settings)
    moving.world.create_topic("b", leader_epoch=0)
    other = moving.world.partition("b")
    for _ in range(SEVERAL_CHUNKS):
        moving.world.produce("b", batch("x" * LARGE))
    throttle(moving)
    moving.alter(SECOND if other.log.log_dir == str(FIRST) else FIRST, "b")
    for _ in range(20):
        moving.turn()
    moving.produce_many(10)
    moving.alter(SECOND)
    for _ in range(20):
        moving.turn()
    future = moving.future
    assert future is not None and future.log_end_offset == 0, "it waits"
    return moving, future


def test_the_answer_waits_for_the_copy_and_not_for_the_move() -> None:
    moving = Moving()
    future = begin_copy_of(moving)

    deletion = Deletion(moving, 1)

    assert deletion.is_waiting and future.log_start_offset == 0
    moving.turn()
    assert deletion.answer == (ErrorCode.NONE, 1)
    assert future.log_start_offset == 1 and moving.place == FIRST


def test_a_copy_that_is_deleted_as_a_whole_begins_anew_without_a_copy_of_anything() -> None:
    moving = Moving()
    future = begin_copy_of(moving)
    copied_bytes = future.size_bytes

    deletion = Deletion(moving, SEVERAL_CHUNKS - 1)
    moving.turn()

    assert deletion.answer == (ErrorCode.NONE, SEVERAL_CHUNKS - 1)
    assert (future.log_start_offset, future.log_end_offset, future.size_bytes) == (SEVERAL_CHUNKS - 1, SEVERAL_CHUNKS - 1, 0)
    assert copied_bytes > 0, "they were there"


@pytest.mark.parametrize("has_arrived", [True, False])
def test_what_was_read_and_is_deleted_before_it_is_appended_is_not_copied(has_arrived: bool) -> None:
    moving = Moving()
    moving.produce("x" * READ_BYTES)  # a thread reads it
    moving.produce("y")
    moving.alter(SECOND)
    moving.world.clock.advance(1)
    assert moving.world.executor.pending

    if has_arrived:
        moving.world.executor.run()
    deletion = Deletion(moving, 1)
    moving.run()

    assert deletion.answer == (ErrorCode.NONE, 1)
    future = moving.future
    assert future is not None and (future.log_start_offset, future.log_end_offset) == (1, 2)
    assert values(b"".join(batches_of(future))) == ["y"] and future.segments.first.base_offset == 1


def test_a_copy_that_waits_for_other_moves_follows() -> None:
    """Kafka's waits for its turn: its DeleteRecords times out, or takes as long as the moves before it."""
    moving, future = queue_behind_another()
    moving.world.replica_manager.quotas.moves.bytes_per_second = FAST

    deletion = Deletion(moving, 7)

    assert deletion.is_waiting
    moving.turn()
    assert deletion.answer == (ErrorCode.NONE, 7)
    assert (future.log_start_offset, future.log_end_offset) == (7, 7), "its turn to be copied has not come"


def test_a_copy_that_waits_for_the_controller_follows() -> None:
    moving = Moving()
    moving.produce_many(10)
    moving.alter(SECOND)
    moving.run()
    assert moving.is_told
    moving.produce_many(10)

    deletion = Deletion(moving, 15)
    moving.run()

    assert deletion.answer == (ErrorCode.NONE, 15)
    assert moving.future is not None and moving.future.log_start_offset == 15


def test_a_log_that_starts_within_a_batch_is_copied_with_the_whole_batch() -> None:
    moving = Moving()
    moving.produce("0", "1", "2", "3")
    moving.produce("4", "5", "6", "7")
    moving.alter(SECOND)
    future = moving.future
    assert future is not None
    Deletion(moving, 6)
    moving.run()
    moving.accept()
    moving.run()

    assert moving.log is future and moving.place == SECOND
    assert (future.log_start_offset, future.log_end_offset, future.high_watermark) == (6, 8, 8)
    assert values(b"".join(batches_of(future))) == ["4", "5", "6", "7"]


def test_no_checkpoint_is_beyond_the_copy_when_it_begins_with_a_batch_before_its_start() -> None:
    """Empty at the log's start, within a batch, it was in its directory's checkpoints: what comes first lies before that."""
    moving, future = queue_behind_another()
    moving.produce(*"abcdef")  # 10 to 15
    Deletion(moving, 13)
    moving.turn()
    write_checkpoints(moving.logs)
    assert future.log_end_offset == future.checkpointed_end_offset == 13

    moving.world.replica_manager.quotas.moves.bytes_per_second = FAST
    moving.world.clock.advance(200_000)
    moving.run()

    assert (future.log_start_offset, future.log_end_offset) == (13, 16)
    assert future.checkpointed_end_offset == 10


@pytest.mark.parametrize("has_power", [True, False], ids=["killed", "power cut"])
def test_a_process_that_dies_in_any_call_of_the_disk_leaves_a_copy_that_fits(has_power: bool) -> None:
    """Records are deleted, within batches, while they are copied and after; and the next process goes on."""
    calls = 0
    while True:
        moving = Moving(seed=calls)
        has_ended = move_and_delete(moving, calls)
        if has_ended:
            break
        if has_power:
            moving.kill()
        else:
            moving.cut_power()

        future, batches = moving.future, batches_of(moving.log)
        if future is not None:
            assert future.log_start_offset <= future.high_watermark <= future.log_end_offset, calls
        moving.run()
        if moving.is_told:
            moving.accept()
            moving.run()
        assert moving.future is None, calls
        # What comes back of the log's front, because no checkpoint told its start, the copy may know to be deleted.
        moved = batches_of(moving.log)
        assert moved == batches[len(batches) - len(moved) :] and (moved or not batches), calls
        calls += 1
    assert calls > CALLS_MIN


def move_and_delete(moving: Moving, calls: int) -> bool:
    """Whether the process lived to the end of it."""
    moving.view.calls_left = calls
    try:
        moving.produce(*"abcdef")
        moving.alter(SECOND)
        Deletion(moving, 2)
        for turns, offset in enumerate((5, 9, 15, 16, 24), start=1):
            write_checkpoints(moving.logs)
            moving.produce(*"abcdef")
            moving.produce(*"ghi")
            Deletion(moving, offset)
            for _ in range(turns):
                moving.turn()
        moving.run()
    except ProcessDiedError:
        return False
    return True


def test_a_move_that_is_ended_counts_no_more() -> None:
    moving = Moving()
    moving.produce_many(10)
    moving.alter(SECOND)
    deletion = Deletion(moving, 5)
    assert deletion.is_waiting

    moving.alter(FIRST)

    assert deletion.answer == (ErrorCode.NONE, 5)
    assert Deletion(moving, 6).answer == (ErrorCode.NONE, 6)


def test_a_copy_that_has_taken_over_counts_no_more() -> None:
    moving = Moving()
    moving.produce_many(10)
    moving.move(SECOND)

    assert Deletion(moving, 5).answer == (ErrorCode.NONE, 5)
    assert moving.partition.in_sync.move is None


def test_a_copy_that_lost_its_end_and_then_its_start_has_what_the_log_has() -> None:
    """The log was cut, grew beyond the copy's end with other records, and then lost its front, between two turns of the copy."""
    moving = Moving()
    moving.produce_many(50)
    moving.alter(SECOND)
    moving.run()
    moving.log.truncate_to(20)
    for count in range(100):
        moving.log.append_as_leader(batch(f"other{count}"), leader_epoch=5, now_ms=WALL_START_MS)
    moving.log.set_high_watermark(120)

    deletion = Deletion(moving, 30)
    moving.turn()
    assert deletion.answer == (ErrorCode.NONE, 30)
    moving.accept()
    moving.run()

    assert moving.place == SECOND and moving.log.log_start_offset == 30
    assert values(b"".join(batches_of(moving.log))) == [f"other{count}" for count in range(10, 100)]
