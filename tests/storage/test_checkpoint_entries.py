"""When an entry of the checkpoints counts: by what the files hold, never by a time; and it never outlives its log."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.topic import LogConfig
from storage.checkpoint import read_offset_checkpoint
from storage.disk import SYSTEM_DISK
from storage.log import Log
from storage.log_manager import LogManager
from tests.storage.conftest import NOW_MS, TOPIC_ID, append, delete_log, read_all_offsets, write_checkpoints
from tests.support.turns import finished

CONFIG = replace(LogConfig(), segment_bytes=10_000)
NEXT_ID = bytes(range(1, 17))
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")
KEY = ("t", 0)


class KilledError(BaseException):
    """Stands for the moment after which the process did nothing more."""


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def start(log_dir: Path, **arguments: Any) -> LogManager:
    manager = LogManager([log_dir], random_source=random.Random(1))
    manager.open(config_of=lambda topic: CONFIG, now_ms=NOW_MS, **arguments)
    return manager


def kill(manager: LogManager) -> None:
    for log in manager.logs():
        log.abandon()
    manager.unlock()


def found_log(manager: LogManager) -> Log:
    log = manager.find_log(*KEY)
    assert log is not None
    return log


def fill(manager: LogManager) -> Log:
    """A log of [60, 100) that every checkpoint names."""
    log = manager.create_log(*KEY, TOPIC_ID, CONFIG, NOW_MS)
    for _ in range(100):
        append(log)
    log.set_high_watermark(100)
    log.set_log_start_offset(60)
    log.flush()
    write_checkpoints(manager)
    return log


def entries(log_dir: Path) -> list[int | None]:
    return [read_offset_checkpoint(log_dir / name).get(KEY) for name in CHECKPOINTS]


def touch(directory: Path) -> None:
    for path in directory.rglob("partition.metadata"):
        os.utime(path)


def make_old(directory: Path) -> None:
    for path in directory.glob("*-checkpoint"):
        os.utime(path, (0, 0))


def lose_metadata(directory: Path) -> None:
    for path in directory.rglob("partition.metadata"):
        path.unlink()


def empty_metadata(directory: Path) -> None:
    for path in directory.rglob("partition.metadata"):
        path.write_bytes(b"")


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("change", [touch, make_old, lose_metadata, empty_metadata])
def test_deleted_records_do_not_come_back_whatever_the_files_times(
    log_dir: Path, tmp_path: Path, change: Callable[[Path], None], is_clean: bool
) -> None:
    """A copy has other times, and a lost partition.metadata is written anew."""
    manager = start(log_dir)
    fill(manager)
    if is_clean:
        manager.close_clean()
    else:
        kill(manager)
    copy = tmp_path / "copy"
    shutil.copytree(log_dir, copy, copy_function=shutil.copy)
    change(copy)

    log = found_log(start(copy, topic_id_of=lambda topic, index: TOPIC_ID))

    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.recovery_point) == (60, 100, 100, 100)


def test_high_watermark_beyond_the_end_is_ignored(log_dir: Path) -> None:
    manager = start(log_dir)
    fill(manager)
    manager.close_clean()
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\nt 0 101\n")

    assert found_log(start(log_dir)).high_watermark == 60


def test_entries_are_gone_before_the_directory_is_renamed(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = start(log_dir)
    fill(manager)
    synced: list[str] = []
    at_rename: list[Any] = []
    sync, move = os.fsync, os.replace

    def noting_sync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    def noting_move(source: Path, target: Path) -> None:
        if str(target).endswith("-delete"):
            at_rename.append((entries(log_dir), [f"{log_dir / name}.tmp" in synced for name in CHECKPOINTS]))
        move(source, target)

    monkeypatch.setattr(SYSTEM_DISK, "fsync", noting_sync)
    monkeypatch.setattr(SYSTEM_DISK, "replace", noting_move)

    delete_log(manager, *KEY)

    assert at_rename == [([None] * 3, [True] * 3)]


def test_two_hundred_partitions_leave_with_one_rewrite(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = start(log_dir)
    for index in range(200):
        manager.create_log("t", index, TOPIC_ID, CONFIG, NOW_MS)
    write_checkpoints(manager)
    fsyncs: list[int] = []
    monkeypatch.setattr(SYSTEM_DISK, "fsync", fsyncs.append)

    for work in finished(manager.delete_logs([("t", index) for index in range(200)])):
        work.run()
        manager.removed(work)

    assert len(fsyncs) <= 6
    assert len(list(log_dir.glob("t-*-delete"))) == 200


def test_partitions_that_no_checkpoint_names_come_and_go_without_an_fsync(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = start(log_dir)
    fsyncs: list[int] = []
    monkeypatch.setattr(SYSTEM_DISK, "fsync", fsyncs.append)

    manager.create_log(*KEY, TOPIC_ID, CONFIG, NOW_MS)
    delete_log(manager, *KEY)
    manager.create_log(*KEY, NEXT_ID, CONFIG, NOW_MS)

    assert fsyncs == []


@pytest.mark.parametrize("is_late", [False, True], ids=["before the removal", "after it"])
def test_checkpoint_that_was_taken_before_a_deletion_does_not_bring_the_entry_back(log_dir: Path, is_late: bool) -> None:
    manager = start(log_dir)
    fill(manager)
    other = manager.create_log("other", 0, TOPIC_ID, CONFIG, NOW_MS)
    append(other, 5)
    other.flush()
    older = manager.take_checkpoints()
    removals = finished(manager.delete_logs([KEY]))

    for work in [*removals, *older] if is_late else [*older, *removals]:
        work.run()

    assert entries(log_dir) == [None] * 3
    assert read_offset_checkpoint(log_dir / CHECKPOINTS[0]) == {("other", 0): 5}


def test_checkpoint_that_was_taken_between_two_pieces_of_a_deletion_does_not_bring_entries_back(log_dir: Path) -> None:
    manager = start(log_dir)
    keys = [("t", index) for index in range(2)]
    for key in keys:
        manager.create_log(*key, TOPIC_ID, CONFIG, NOW_MS)
    deletion = manager.delete_logs(keys)
    next(deletion)
    (checkpoint,) = manager.take_checkpoints()
    (removal,) = finished(deletion)

    removal.run()
    checkpoint.run()

    assert checkpoint.checkpoints.recovery_points  # of those that were not closed yet
    assert read_offset_checkpoint(log_dir / CHECKPOINTS[0]) == {}


def test_checkpoint_of_the_next_log_of_that_name_counts(log_dir: Path) -> None:
    manager = start(log_dir)
    fill(manager)
    delete_log(manager, *KEY)
    log = manager.create_log(*KEY, NEXT_ID, CONFIG, NOW_MS)
    append(log, 5)
    log.flush()

    write_checkpoints(manager)

    assert entries(log_dir) == [5, None, 0]


def test_log_is_made_anew_while_the_old_one_leaves(log_dir: Path) -> None:
    """Nobody ran the work yet: it is done on the spot, and running it later changes nothing."""
    manager = start(log_dir)
    fill(manager)
    (work,) = finished(manager.delete_logs([KEY]))
    was_leaving = manager.is_leaving(*KEY)

    append(manager.create_log(*KEY, NEXT_ID, CONFIG, NOW_MS), 5)
    work.run()
    manager.removed(work)
    kill(manager)

    assert was_leaving and not manager.is_leaving(*KEY)
    assert read_all_offsets(found_log(start(log_dir))) == list(range(5))
    assert len(list(log_dir.glob("t-0.*-delete"))) == 1


def test_clean_stop_finishes_what_leaves(log_dir: Path) -> None:
    manager = start(log_dir)
    fill(manager)
    finished(manager.delete_logs([KEY]))

    manager.close_clean()

    assert entries(log_dir) == [None] * 3
    assert [path.name.rpartition("-")[2] for path in log_dir.iterdir() if path.is_dir()] == ["delete"]


@pytest.mark.parametrize("topic_id", [None, NEXT_ID], ids=["unknown topic", "made anew"])
def test_entries_of_strays_go_before_they_are_set_aside(log_dir: Path, topic_id: bytes | None) -> None:
    manager = start(log_dir)
    fill(manager)
    kill(manager)

    start(log_dir, topic_id_of=lambda topic, index: topic_id)

    assert entries(log_dir) == [None] * 3
    assert len(list(log_dir.glob("t-0.*-stray"))) == 1


def test_entries_without_a_directory_say_nothing_about_the_next_log_of_that_name(log_dir: Path) -> None:
    """Somebody removed the directory, or a Kafka died between renaming it and writing its checkpoints."""
    manager = start(log_dir)
    fill(manager)
    kill(manager)
    shutil.rmtree(log_dir / "t-0")
    manager = start(log_dir)
    append(manager.create_log(*KEY, NEXT_ID, CONFIG, NOW_MS), 80)
    kill(manager)

    log = found_log(start(log_dir))

    assert (log.log_start_offset, log.recovery_point) == (0, 0)
    assert read_all_offsets(log) == list(range(80))


def test_killed_at_any_step_of_a_deletion_leaves_nothing_for_the_next_log_of_that_name(tmp_path: Path) -> None:
    steps = 0
    is_through = False
    while not is_through:
        log_dir = tmp_path / str(steps)
        manager = start(log_dir)
        fill(manager)
        is_through = try_to_delete(manager, steps)
        kill(manager)
        # The metadata, which is durable before, has the topic's successor by now.
        manager = start(log_dir, topic_id_of=lambda topic, index: NEXT_ID)
        append(manager.create_log(*KEY, NEXT_ID, CONFIG, NOW_MS), 80)
        kill(manager)

        log = found_log(start(log_dir, topic_id_of=lambda topic, index: NEXT_ID))

        assert (log.log_start_offset, log.recovery_point) == (0, 0)
        assert read_all_offsets(log) == list(range(80))
        steps += 1
    assert steps > 10


def try_to_delete(manager: LogManager, calls_max: int) -> bool:
    """Delete the log, killed after `calls_max` calls that change the directory. Returns whether it got through."""
    calls_left = calls_max

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            nonlocal calls_left
            if calls_left == 0:
                raise KilledError
            calls_left -= 1
            return call(*arguments, **named)

        return called

    with pytest.MonkeyPatch.context() as patch:
        for name in ("write", "replace", "fsync"):
            patch.setattr(SYSTEM_DISK, name, dying(getattr(SYSTEM_DISK, name)))
        try:
            delete_log(manager, *KEY)
        except KilledError:
            return False
    return True


def test_what_is_appended_after_a_start_that_lost_records_is_neither_durable_nor_committed(log_dir: Path) -> None:
    """A second kill may come before the next checkpoint, and the log may reach as far again by then."""
    manager = start(log_dir)
    fill(manager)
    kill(manager)
    last = max(log_dir.rglob("*.log"))
    os.truncate(last, last.stat().st_size * 3 // 4)
    manager = start(log_dir)
    log = found_log(manager)
    end_offset = log.log_end_offset
    assert 60 < end_offset < 100

    for _ in range(100):
        append(log)
    kill(manager)

    assert entries(log_dir) == [0, 60, 60]
    reopened = found_log(start(log_dir))
    assert reopened.log_end_offset == end_offset + 100
    assert reopened.durable_end_offset <= end_offset
    assert reopened.high_watermark <= end_offset
