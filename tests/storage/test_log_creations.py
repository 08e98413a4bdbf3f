"""Logs that a thread makes, and those who cannot wait for it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.topic import LogConfig
from storage.disk import Disk, SystemDisk
from storage.errors import StorageError
from storage.log_creations import NewLog
from storage.log_manager import LogManager
from tests.storage.conftest import NOW_MS, TOPIC_ID

CONFIG = replace(LogConfig(), segment_bytes=2000)


def open_manager(*log_dirs: Path, **arguments: Any) -> LogManager:
    manager = LogManager(log_dirs, random_source=random.Random(1), **arguments)
    manager.open(config_of=lambda topic: CONFIG, now_ms=NOW_MS)
    return manager


def disk_with_mkdir(mkdir: Callable[[Callable[..., None], Path], None]) -> Disk:
    """The machine's, but for mkdir, which is given the machine's and the path."""
    disk = SystemDisk()
    own = disk.mkdir
    disk.mkdir = lambda path, mode=0o777, /: mkdir(own, Path(path))
    return disk


def new_logs(*partitions: int, leader_epoch: int | None = None) -> list[NewLog]:
    return [NewLog("orders", partition, TOPIC_ID, CONFIG, None, leader_epoch) for partition in partitions]


def test_planned_logs_are_there_once_they_are_made_and_after_a_restart(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)

    work = manager.plan_creations(new_logs(0, 1, leader_epoch=7), NOW_MS)
    planned = list(tmp_path.glob("orders-*"))
    work.run()
    before = manager.logs()
    manager.created(work)
    epochs = [manager.find_log("orders", index).leader_epochs.latest_epoch for index in range(2)]
    manager.close_clean()
    again = open_manager(tmp_path)

    assert planned == [] and before == [] and epochs == [7, 7]
    assert {(log.topic, log.partition, log.topic_id) for log in again.logs()} == {("orders", 0, TOPIC_ID), ("orders", 1, TOPIC_ID)}
    again.close_clean()


def test_log_that_somebody_cannot_wait_for_is_made_once(tmp_path: Path) -> None:
    made: list[str] = []

    def mkdir(own: Callable[..., None], path: Path) -> None:
        made.append(path.name)
        own(path)

    manager = open_manager(tmp_path, disk=disk_with_mkdir(mkdir))
    work = manager.plan_creations(new_logs(0, 1, 2), NOW_MS)

    log = manager.create_log("orders", 2, TOPIC_ID, CONFIG, NOW_MS)
    work.run()
    manager.created(work)

    assert made == ["orders-2", "orders-0", "orders-1"]
    assert manager.find_log("orders", 2) is log
    assert len(manager.logs()) == 3
    manager.close_clean()


def test_who_cannot_wait_waits_for_the_one_that_is_being_made(tmp_path: Path) -> None:
    is_making, may_go_on = threading.Event(), threading.Event()

    def mkdir(own: Callable[..., None], path: Path) -> None:
        if path.name == "orders-0":
            is_making.set()
            assert may_go_on.wait(10)
        own(path)

    manager = open_manager(tmp_path, disk=disk_with_mkdir(mkdir))
    work = manager.plan_creations(new_logs(0, 1), NOW_MS)
    thread = threading.Thread(target=work.run)
    thread.start()
    assert is_making.wait(10)

    threading.Timer(0.05, may_go_on.set).start()
    log = manager.create_log("orders", 0, TOPIC_ID, CONFIG, NOW_MS)
    thread.join(10)
    manager.created(work)

    assert manager.find_log("orders", 0) is log
    assert len(manager.logs()) == 2
    manager.close_clean()


def test_creation_that_is_withdrawn_makes_nothing_and_one_that_came_too_late_says_so(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    early = manager.plan_creations(new_logs(0), NOW_MS)
    late = manager.plan_creations(new_logs(1), NOW_MS)
    late.run()

    there = manager.withdraw_creations([("orders", partition) for partition in (0, 1, 2)])
    early.run()
    for work in (early, late):
        manager.created(work)

    assert there == [("orders", 1)]
    assert [log.partition for log in manager.logs()] == [1]
    assert [path.name for path in tmp_path.glob("orders-*")] == ["orders-1"]
    manager.close_clean()


def test_planned_logs_are_spread_over_the_directories(tmp_path: Path) -> None:
    manager = open_manager(tmp_path / "first", tmp_path / "second")

    work = manager.plan_creations(new_logs(*range(6)), NOW_MS)
    work.run()
    manager.created(work)

    assert sorted(Path(log.log_dir).name for log in manager.logs()) == ["first"] * 3 + ["second"] * 3
    manager.close_clean()


def test_what_a_failing_disk_does_not_take_is_told_to_who_asks_for_it(tmp_path: Path) -> None:
    def mkdir(own: Callable[..., None], path: Path) -> None:
        raise OSError(5, "Input/output error")

    manager = open_manager(tmp_path, disk=disk_with_mkdir(mkdir))
    work = manager.plan_creations(new_logs(0), NOW_MS)

    work.run()
    manager.created(work)
    with pytest.raises(StorageError):
        manager.create_log("orders", 0, TOPIC_ID, CONFIG, NOW_MS)

    assert manager.logs() == [] and manager.online_directories == []


def test_logs_of_a_directory_that_fails_meanwhile_are_not_taken_over(tmp_path: Path) -> None:
    manager = open_manager(tmp_path / "first", tmp_path / "second")
    work = manager.plan_creations(new_logs(*range(4)), NOW_MS)
    work.run()

    manager.mark_offline(tmp_path / "first", StorageError("it fails", path=tmp_path / "first"))
    manager.created(work)

    assert [Path(log.log_dir).name for log in manager.logs()] == ["second"] * 2
    manager.close_clean()


def test_a_stop_leaves_what_is_made_whole_and_makes_nothing_more(tmp_path: Path) -> None:
    manager = open_manager(tmp_path)
    made = manager.plan_creations(new_logs(0), NOW_MS)
    made.run()
    waiting = manager.plan_creations(new_logs(1), NOW_MS)

    manager.close_clean()
    waiting.run()
    again = open_manager(tmp_path)

    assert [log.partition for log in again.logs()] == [0]
    again.close_clean()


def test_who_waits_is_let_in_after_the_log_that_is_being_made(tmp_path: Path) -> None:
    """The thread takes the lock again and again: the loop waited for all fifty, 90 ms."""
    is_making, is_waiting = threading.Event(), threading.Event()
    made: list[str] = []

    def mkdir(own: Callable[..., None], path: Path) -> None:
        made.append(path.name)
        if path.name == "orders-0":
            is_making.set()
            assert is_waiting.wait(10)
            time.sleep(0.05)  # until it waits indeed
        own(path)

    manager = open_manager(tmp_path, disk=disk_with_mkdir(mkdir))
    work = manager.plan_creations(new_logs(*range(50)), NOW_MS)
    thread = threading.Thread(target=work.run)
    thread.start()
    assert is_making.wait(10)

    is_waiting.set()
    manager.create_log("orders", 49, TOPIC_ID, CONFIG, NOW_MS)
    thread.join(10)
    manager.created(work)

    assert made.index("orders-49") == 1
    assert len(manager.logs()) == 50
    manager.close_clean()
