"""A broker dies, or a disk fails, at each step of a move to another log directory: nothing that counts is lost, and the move ends."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from storage.errors import StorageError
from tests.broker.replication.moves.moving import FIRST, IDS, SECOND, Moving, batches_of
from tests.broker.replication.world import batch, values
from tests.simulation.disk import ProcessDiedError
from tests.storage.conftest import write_checkpoints
from tests.support.clock import WALL_START_MS

pytestmark = pytest.mark.long("a crash after any call")

CALLS_MIN = 100  # of the disk, that a move makes


class Story:
    """One move while records are produced, whose process dies inside the call number `calls` of the disk."""

    def __init__(self, calls: int, *, is_durable: bool = False) -> None:
        self.moving = Moving(seed=calls)
        self.durable_count = 0
        if is_durable:
            self.moving.world.set_topic_config("a", "flush.messages", "1")
            self.moving.world.clock.advance(1)
        self._is_durable = is_durable
        self._draw = random.Random(calls)
        self.appended_count = 0
        self.produce(5)
        self.moving.log.flush()
        self.durable_count = 5
        self.moving.view.calls_left = calls
        self.has_ended = False

    def produce(self, count: int) -> None:
        for _ in range(count):
            log, epoch = self.moving.log, self.moving.partition.leader_epoch
            log.append_as_leader(batch(f"record {self.appended_count + 1}"), leader_epoch=epoch, now_ms=WALL_START_MS)
            self.appended_count += 1
            log.set_high_watermark(log.log_end_offset)

    def turn(self) -> None:
        self.produce(self._draw.randrange(3))
        if self._is_durable:
            self.moving.world.replica_manager.request_flush((self.moving.partition,))
        self.moving.turn()
        self.durable_count = max(self.durable_count, self.moving.log.durable_end_offset if self._is_durable else 0)

    def tell(self) -> None:
        """From the request to the end, unless the process dies before."""
        moving, told_turns = self.moving, 0
        try:
            moving.alter(SECOND)
            for _ in range(25):
                self.turn()
                if self._draw.random() < 0.2:
                    write_checkpoints(moving.logs)
                told_turns += moving.is_told
                if told_turns == 2:
                    moving.commit_assignment()
                elif told_turns == 4:
                    moving.accept()
            self.has_ended = moving.future is None
        except ProcessDiedError:
            pass


def texts(moving: Moving) -> list[str]:
    return values(b"".join(batches_of(moving.log)))


def settle(moving: Moving) -> None:
    """What was interrupted goes on, and the replica comes to rest in one directory, which the controller knows."""
    found = texts(moving)
    if moving.future is not None:
        moving.run()
        moving.accept()
        moving.run()
        assert moving.place == SECOND
    assert moving.future is None and texts(moving) == found
    assert moving.known == IDS[moving.place]
    assert [each for each in moving.directories() if each.endswith("/a-0")] == [f"{moving.place.name}/a-0"]


def records(count: int) -> list[str]:
    return [f"record {number}" for number in range(1, count + 1)]


@pytest.mark.parametrize("is_durable", [False, True], ids=["default", "flush.messages=1"])
def test_a_kill_in_any_call_of_the_disk_loses_no_record(is_durable: bool) -> None:
    calls = 0
    while True:
        story = Story(calls, is_durable=is_durable)
        story.tell()
        if story.has_ended:
            break
        story.moving.kill()

        # The record that was being appended may be there or not.
        assert texts(story.moving) in (records(story.appended_count), records(story.appended_count + 1)), calls
        settle(story.moving)
        calls += 1
    assert calls > CALLS_MIN and story.moving.place == SECOND


@pytest.mark.parametrize("is_durable", [False, True], ids=["default", "flush.messages=1"])
def test_a_power_cut_in_any_call_of_the_disk_loses_nothing_that_was_durable(is_durable: bool) -> None:
    calls = 0
    while True:
        story = Story(calls, is_durable=is_durable)
        story.tell()
        if story.has_ended:
            break
        story.moving.cut_power()

        assert texts(story.moving)[: story.durable_count] == records(story.durable_count), calls
        settle(story.moving)
        calls += 1
    assert calls > CALLS_MIN


@pytest.mark.parametrize("failing", [FIRST, SECOND])
def test_a_disk_that_fails_ends_the_move(failing: Path) -> None:
    """The target's loss costs nothing; with the source the replica is lost, and its copy stays for when the disk is back."""
    moving = Moving()
    moving.produce_many(10)
    moving.alter(SECOND)
    moving.run()
    moving.commit_assignment()

    moving.world.replica_manager.fail_log_dir(failing, StorageError("broken", path=failing))
    moving.logs.mark_offline(failing, StorageError("broken", path=failing))
    moving.world.replica_manager.moves.drop_ended()
    moving.run()

    partition = moving.world.replica_manager.find_partition("a", 0)
    assert partition is not None and partition.is_offline == (failing == FIRST)
    assert moving.world.misplaced[-1][2] == IDS[FIRST], "the controller is told that it has stayed"
    if failing == SECOND:
        moving.produce("more")
        assert moving.alter(SECOND) is ErrorCode.KAFKA_STORAGE_ERROR
    moving.commit_assignment()
    moving.kill()
    settle(moving)
    assert moving.place == SECOND and moving.log.log_end_offset == 10 + (failing == SECOND)


def test_a_target_that_fails_before_it_is_durable_leaves_the_old_log_for_the_operator() -> None:
    """It lacks what was appended since: to serve it would lose that without a word."""
    moving = Moving()
    moving.produce_many(10)
    moving.alter(SECOND)
    moving.run()
    moving.accept()
    moving.world.clock.advance(1)
    moving.world.clock.advance(1)
    assert moving.place == SECOND and "first/a-0" in moving.directories()

    moving.logs.mark_offline(SECOND, StorageError("broken", path=SECOND))
    moving.world.replica_manager.fail_log_dir(SECOND, StorageError("broken", path=SECOND))
    moving.run()

    assert "first/a-0-stray" in moving.directories() and "first/a-0" not in moving.directories()
