"""Somebody removes, moves or replaces the files of a log that is being written to: nothing more is vouched for that is in them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from config.topic import LogConfig
from storage.disk import SYSTEM_DISK
from storage.errors import StorageError
from storage.log import Log
from storage.log_manager import LogManager
from tests.storage.conftest import NOW_MS, TOPIC_ID, OpenLog, append, read_all_offsets, write_checkpoints

FIRST_LOG = "00000000000000000000.log"


def unlink_segment(directory: Path) -> None:
    (directory / FIRST_LOG).unlink()


def move_segment(directory: Path) -> None:
    (directory / FIRST_LOG).rename(directory / "elsewhere")


def replace_segment(directory: Path) -> None:
    """As a backup that is restored, or an editor, does."""
    shutil.copy2(directory / FIRST_LOG, directory / "copy")
    (directory / "copy").rename(directory / FIRST_LOG)


def remove_directory(directory: Path) -> None:
    shutil.rmtree(directory)


def move_directory(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


def replace_directory_by_a_file(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.write_bytes(b"")


VANISHINGS = [unlink_segment, move_segment, replace_segment, remove_directory, move_directory, replace_directory_by_a_file]


@pytest.mark.parametrize("vanish", VANISHINGS)
def test_flush_does_not_vouch_for_a_file_that_is_gone(log: Log, directory: Path, vanish: Callable[[Path], None]) -> None:
    append(log, 5)
    log.flush()
    vanish(directory)
    append(log, 5, now_ms=NOW_MS + 1000)

    with pytest.raises(StorageError, match=f"{FIRST_LOG} was removed or replaced while it was written to"):
        log.flush()

    assert log.durable_end_offset == 5


@pytest.mark.parametrize("vanish", VANISHINGS)
def test_roll_does_not_go_on_behind_a_file_that_is_gone(open_log: OpenLog, directory: Path, vanish: Callable[[Path], None]) -> None:
    log = open_log(segment_bytes=1000)
    append(log)
    vanish(directory)

    with pytest.raises(StorageError, match=f"{FIRST_LOG} was removed or replaced") as refusal:
        for _ in range(10):
            append(log)

    assert refusal.value.path == directory / FIRST_LOG
    assert len(log.segments) == 1


def test_group_commit_looks_at_a_file_once_a_second(log: Log, directory: Path) -> None:
    append(log)
    log.flush()
    unlink_segment(directory)
    append(log, now_ms=NOW_MS + 999)
    log.flush()
    append(log, now_ms=NOW_MS + 1000)

    with pytest.raises(StorageError, match="was removed"):
        log.flush()


def test_clock_that_goes_back_does_not_keep_from_looking(log: Log, directory: Path) -> None:
    append(log)
    log.flush()
    unlink_segment(directory)
    append(log, now_ms=NOW_MS - 1)

    with pytest.raises(StorageError, match="was removed"):
        log.flush()


def test_lost_indexes_cost_nothing(open_log: OpenLog, directory: Path) -> None:
    log = open_log(segment_bytes=20_000, index_interval_bytes=100)
    for number in range(300):
        append(log, timestamp=NOW_MS + number)
        if number == 100:
            for path in directory.glob("*index"):
                path.unlink()
        if number % 10 == 0:
            log.flush()
    log.close()

    reopened = open_log(segment_bytes=20_000, index_interval_bytes=100, was_clean_stop=True)

    assert read_all_offsets(reopened) == list(range(300))
    assert [reopened.find_offset_by_timestamp(NOW_MS + number, end_offset=300) for number in (50, 101, 200)] == [
        (NOW_MS + number, number, 0) for number in (50, 101, 200)
    ]


@pytest.mark.parametrize("is_unloaded", [False, True])
def test_flush_that_runs_while_retention_deletes_its_files_harms_nobody(open_log: OpenLog, is_unloaded: bool) -> None:
    log = open_log(segment_bytes=1000, file_delete_delay_ms=0, retention_bytes=0)
    for _ in range(30):
        append(log)
    log.set_high_watermark(30)
    work = log.take_flush()
    assert work is not None
    if is_unloaded:
        for segment in log.segments:
            if not segment.is_active:
                segment.unload()

    log.delete_old_segments(NOW_MS)
    for deletion in log.deletions.take_due(NOW_MS):
        for path in deletion.paths:
            path.unlink()
    work.run()
    log.flushed(work)

    assert log.durable_end_offset == 30


def test_flush_that_runs_while_the_log_starts_over_harms_nobody(log: Log) -> None:
    append(log, 5)
    work = log.take_flush()
    assert work is not None

    log.truncate_fully_and_start_at(100)
    work.run()
    log.flushed(work)

    assert (log.log_end_offset, log.durable_end_offset) == (100, 0)


@pytest.mark.parametrize("has_syncfs", [True, False])
def test_stop_with_a_file_that_is_gone_is_not_clean(
    tmp_path: Path, has_syncfs: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if has_syncfs and not SYSTEM_DISK.can_syncfs():
        pytest.skip("syncfs is Linux's")
    monkeypatch.setattr(SYSTEM_DISK, "can_syncfs", lambda: has_syncfs)
    manager = LogManager([tmp_path], random_source=random.Random(1))
    manager.open(config_of=lambda topic: LogConfig(), now_ms=NOW_MS)
    append(manager.create_log("t", 0, TOPIC_ID, LogConfig(), NOW_MS))
    unlink_segment(tmp_path / "t-0")

    manager.close_clean()

    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert f"{FIRST_LOG} was removed or replaced" in caplog.text


def test_killed_log_without_any_segment_is_said_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = LogManager([tmp_path], random_source=random.Random(1))
    manager.open(config_of=lambda topic: LogConfig(), now_ms=NOW_MS)
    log = manager.create_log("t", 0, TOPIC_ID, replace(LogConfig()), NOW_MS)
    append(log, 5)
    log.flush()
    write_checkpoints(manager)
    log.abandon()
    manager.unlock()
    unlink_segment(tmp_path / "t-0")

    manager = LogManager([tmp_path], random_source=random.Random(1))
    manager.open(config_of=lambda topic: LogConfig(), now_ms=NOW_MS)

    assert "has no segment, though its log ended at offset 5: its records are missing" in caplog.text
