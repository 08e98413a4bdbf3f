"""A log directory whose disk refuses one call, whichever it is: StorageError and nothing else comes out, and after a restart
everything acknowledged is there."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.topic import LogConfig
from storage.disk import SYSTEM_DISK
from storage.errors import StorageError
from storage.log_manager import LogManager
from tests.storage.conftest import (
    NOW_MS,
    TOPIC_ID,
    append,
    append_idempotent,
    delete_pending,
    enforce_retention,
    read_all_offsets,
    write_checkpoints,
)

pytestmark = pytest.mark.long("a disk that fails in any call")

CONFIG = replace(LogConfig(), segment_bytes=1000, index_interval_bytes=100, file_delete_delay_ms=0)
WRITING_CALLS = ("pwrite", "write", "open", "replace", "unlink", "ftruncate", "fsync", "fdatasync", "mkdir")
APPENDS = 24
RETAINED_BYTES = 2500
STEP = 3  # every call takes 3 s for each error


class FailingDisk:
    """Counts the calls that write and refuses those from number `fail_from` on; an append that it refuses first is cut short."""

    def __init__(self, fail_from: int | None, error_number: int) -> None:
        self.calls_count = 0
        self._fail_from = fail_from
        self._error_number = error_number

    @contextmanager
    def mounted(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in WRITING_CALLS:
                patch.setattr(SYSTEM_DISK, name, self._wrap(name, getattr(SYSTEM_DISK, name)))
            yield

    def _wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if name == "open" and not arguments[1] & os.O_CREAT:
                return call(*arguments, **named)
            self.calls_count += 1
            if self._fail_from is None or self.calls_count <= self._fail_from:
                return call(*arguments, **named)
            if name == "pwrite" and self.calls_count == self._fail_from + 1 and self._error_number == errno.ENOSPC:
                return call(arguments[0], memoryview(arguments[1])[: len(arguments[1]) // 2], *arguments[2:])
            raise OSError(self._error_number, os.strerror(self._error_number))

        return wrapped


def open_manager(log_dir: Path) -> LogManager:
    manager = LogManager([log_dir], random_source=random.Random(1))
    manager.open(config_of=lambda topic: CONFIG, now_ms=NOW_MS)
    return manager


def run_broker(log_dir: Path, acked: list[int]) -> LogManager:
    """A short life of a broker on `log_dir`. Adds each acknowledged sequence, which is its offset, to `acked`."""
    try:
        manager = open_manager(log_dir)
    except StorageError:
        return LogManager([log_dir], random_source=random.Random(1))  # it could not even take the lock
    try:
        log = manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
        for sequence in range(APPENDS):
            log.assign_leader_epoch(sequence // 8)
            result = append(log, leader_epoch=sequence // 8, producer_id=7, producer_epoch=0, base_sequence=sequence)
            acked.append(result.base_offset)
            log.set_high_watermark(log.log_end_offset)
            if sequence % 6 == 5:
                log.flush()
                write_checkpoints(manager)
            if sequence == APPENDS // 2:
                log.update_config(replace(CONFIG, retention_bytes=RETAINED_BYTES))
                enforce_retention(manager, NOW_MS)
                delete_pending(manager, NOW_MS)
            if not manager.online_directories:
                return manager
    except StorageError as error:
        manager.mark_offline(log_dir, error)
    manager.close_clean()
    return manager


def count_calls(tmp_path: Path) -> int:
    disk = FailingDisk(None, errno.EIO)
    with disk.mounted():
        run_broker(tmp_path / "counted", [])
    return disk.calls_count


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=["full", "broken", "read-only"])
def test_whatever_call_the_disk_refuses_nothing_acked_is_lost(tmp_path: Path, error_number: int) -> None:
    for fail_from in range(0, count_calls(tmp_path), STEP):
        log_dir = tmp_path / f"fail-{fail_from}"
        acked: list[int] = []
        with FailingDisk(fail_from, error_number).mounted():
            failed_manager = run_broker(log_dir, acked)
        failed_manager.unlock()

        restarted = open_manager(log_dir)

        log = restarted.find_log("t", 0)
        if acked:
            assert log is not None, fail_from
            assert set(acked) <= {*range(log.log_start_offset), *read_all_offsets(log)}, fail_from
            assert append_idempotent(log, acked[-1]).base_offset == acked[-1], fail_from
        restarted.close_clean()
