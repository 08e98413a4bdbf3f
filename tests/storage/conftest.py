"""Batches and logs for the storage tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.topic import LogConfig
from protocol.records import SimpleRecord, build_batch, iterate_records
from storage import log_opener
from storage.errors import StorageError
from storage.file_slice import take_bytes
from storage.log import AppendResult, Log
from storage.log_manager import LogManager
from tests.support.transactions import verified
from tests.support.turns import finished

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))

OpenLog = Callable[..., Log]


def batch(count: int = 1, *, size: int = 100, timestamp: int = NOW_MS, key: bytes | None = b"k", **fields: Any) -> memoryview:
    """A writable batch of `count` records with values of `size` bytes."""
    return memoryview(build_batch([SimpleRecord(key, b"v" * size, (), timestamp) for _ in range(count)], **fields))


def append(log: Log, count: int = 1, *, now_ms: int = NOW_MS, leader_epoch: int = 0, **fields: Any) -> AppendResult:
    """A transactional batch was verified before."""
    records = batch(count, **fields)
    return log.append_as_leader(records, leader_epoch=leader_epoch, now_ms=now_ms, transaction=verified(log, records))


def append_idempotent(
    log: Log, sequence: int, count: int = 1, *, producer_id: int = 7, producer_epoch: int = 0, leader_epoch: int = 0
) -> AppendResult:
    return append(log, count, leader_epoch=leader_epoch, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence)


def read_bytes(log: Log, start_offset: int, **arguments: Any) -> bytes:
    arguments = {"max_bytes": 1 << 30, "end_offset": log.log_end_offset, **arguments}
    return take_bytes(log.read(start_offset, **arguments))


def read_offsets(log: Log, start_offset: int, **arguments: Any) -> list[int]:
    """The offsets of every record that one read returns."""
    data = read_bytes(log, start_offset, **arguments)
    offsets: list[int] = []
    position = 0
    while position < len(data):
        offsets += [record.offset for record in iterate_records(data, position)]
        position += 12 + int.from_bytes(data[position + 8 : position + 12])
    return offsets


def read_all_offsets(log: Log) -> list[int]:
    """The offsets of every record in the log, read segment by segment."""
    offsets: list[int] = []
    offset = log.log_start_offset
    while found := read_offsets(log, offset):
        offsets += found
        offset = found[-1] + 1
    return offsets


def delete_log(manager: LogManager, topic: str, partition: int) -> None:
    """Delete one log now, as the broker does in two threads' turns."""
    for work in finished(manager.delete_logs([(topic, partition)])):
        try:
            work.run()
        except StorageError as error:
            manager.mark_offline(work.path, error)
        else:
            manager.removed(work)


def delete_pending(manager: LogManager, now_ms: int) -> None:
    """Remove what is due now."""
    work = manager.take_due_deletions(now_ms)
    if work is not None:
        work.run()


def enforce_retention(manager: LogManager, now_ms: int) -> int:
    """Roll what is too old, delete what retention says, in every log; returns how many segments went."""
    return sum(manager.enforce_retention_of(log, now_ms) for log in manager.logs())


def write_checkpoints(manager: LogManager) -> None:
    for work in manager.take_checkpoints():
        try:
            work.run()
        except StorageError as error:
            manager.mark_offline(work.path, error)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "t-0"
    path.mkdir()
    return path


@pytest.fixture
def open_log(directory: Path) -> OpenLog:
    """Opens the log in `directory`; calling it again is a restart after a kill, unless `was_clean_stop` says otherwise.

    Keywords that LogConfig has are settings, the others go to `storage.log_opener.open_log`."""

    def open_it(**arguments: Any) -> Log:
        settings = {name: arguments.pop(name) for name in list(arguments) if hasattr(LogConfig(), name)}
        arguments = {"now_ms": NOW_MS, **arguments}
        return log_opener.open_log(directory, "t", 0, TOPIC_ID, replace(LogConfig(), **settings), **arguments)

    return open_it


@pytest.fixture
def log(open_log: OpenLog) -> Log:
    return open_log()
