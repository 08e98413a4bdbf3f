"""A log is cut only when no checkpoint names what lies beyond: opened again after a kill or a power cut, what came later is not taken for
what was there before."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.replication.moves.truncation_checkpoints import TruncationCheckpoints
from config.topic import LogConfig
from protocol.records import iterate_headers, iterate_records
from storage.disk import SYSTEM_DISK
from storage.errors import StorageError
from storage.log import Log
from storage.log_directory import CheckpointWork
from storage.log_manager import LogManager
from tests.simulation.disk import SimulatedDisk
from tests.storage.compaction.logs import put, run
from tests.storage.conftest import NOW_MS, TOPIC_ID, read_bytes

COMPACTED = LogConfig(cleanup_policy=("compact",), segment_bytes=1000)
PLAIN = LogConfig(segment_bytes=3000)
RECORDS = 100
CUT_AT = 50


class Place:
    """A log that is durable and committed, as its checkpoints say, and work that waits for a thread."""

    def __init__(self, directory: Path, config: LogConfig = PLAIN, disk: SimulatedDisk | None = None) -> None:
        self.directory = directory / "data"
        self.config = config
        self.disk = disk
        self.manager = self.open()
        self.log = self.manager.create_log("t", 0, TOPIC_ID, config, NOW_MS)
        for number in range(RECORDS):
            put(self.log, (f"key{number}", f"old {number} " + "v" * 80))
        self.log.roll(NOW_MS)
        if config is COMPACTED:
            run(self.log)
        self.log.flush()
        self.take_checkpoint().run()
        self.waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self.failures: list[Path] = []
        self.truncation_checkpoints = TruncationCheckpoints(self.manager, self.run_blocking, lambda path, error: self.failures.append(path))

    def open(self) -> LogManager:
        disk = SYSTEM_DISK if self.disk is None else self.disk.boot()
        manager = LogManager([self.directory], random_source=random.Random(1), disk=disk)
        manager.open(config_of=lambda name: self.config, now_ms=NOW_MS)
        return manager

    def run_blocking(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        self.waiting.append((function, asyncio.get_running_loop().create_future()))
        return self.waiting[-1][1]

    async def run_waiting(self) -> int:
        """Returns how many there were."""
        count = 0
        while self.waiting:
            function, done = self.waiting.pop()
            function()
            done.set_result(None)
            count += 1
            await asyncio.sleep(0)
        return count

    async def lower(self, offset: int = CUT_AT) -> None:
        """Do what has to be done before the log is cut there."""
        assert not self.truncation_checkpoints.may_truncate(self.log, offset)
        await self.run_waiting()
        assert self.truncation_checkpoints.may_truncate(self.log, offset)

    def take_checkpoint(self) -> CheckpointWork:
        (work,) = self.manager.take_checkpoints()
        return work

    def cut_and_grow(self) -> None:
        self.log.truncate_to(CUT_AT)
        for number in range(RECORDS):
            put(self.log, (f"key{number}", f"new {self.log.log_end_offset} " + "v" * 80))

    def reopen_after_a_kill(self) -> Log:
        self.manager.unlock()  # as the kernel does
        log = self.open().find_log("t", 0)
        assert log is not None
        return log


def check_records(log: Log) -> list[bytes]:
    """What the records say of themselves, which is also what their offsets are."""
    kinds: list[bytes] = []
    offset = 0
    while offset < log.log_end_offset and (data := read_bytes(log, offset)):
        headers = list(iterate_headers(data))
        assert headers
        for position, header in headers:
            assert header.base_offset >= offset
            offset = header.next_offset
            for record in iterate_records(data, position):
                assert record.value is not None
                kind, own_offset, _ = bytes(record.value).split()
                assert int(own_offset) == record.offset
                kinds.append(kind)
    return kinds


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def compacted(tmp_path: Path) -> Place:
    """Its log is clean up to the active segment, and the checkpoint says so."""
    return Place(tmp_path, COMPACTED)


@pytest.mark.parametrize("seed", range(10))
async def test_what_a_power_cut_damages_behind_a_cut_is_noticed(seed: int) -> None:
    """If recovery began at the old recovery point, readers would get the damage, or the directory would go offline."""
    disk = SimulatedDisk(random.Random(seed), lambda: NOW_MS / 1000, lambda kind, text: None)
    place = Place(Path("/"), disk=disk)

    await place.lower()
    place.cut_and_grow()
    place.manager.unlock()
    disk.cut_power()
    reopened = place.open().find_log("t", 0)

    assert reopened is not None
    found = check_records(reopened)
    assert found[:CUT_AT] == [b"old"] * CUT_AT
    assert {*found} <= {b"old", b"new"}


async def test_what_was_appended_after_a_cut_is_not_durable_after_a_kill(place: Place) -> None:
    """With flush.messages=1 producers would get their acknowledgement for it."""
    await place.lower()
    place.cut_and_grow()

    assert place.reopen_after_a_kill().durable_end_offset <= CUT_AT


async def test_what_was_appended_after_a_cut_is_not_committed_after_a_kill(place: Place) -> None:
    await place.lower()
    place.cut_and_grow()

    assert place.reopen_after_a_kill().high_watermark <= CUT_AT


async def test_what_was_appended_after_a_cut_is_not_deleted_after_a_kill(place: Place) -> None:
    """A replica of an unclean leader would hide what that has committed."""
    place.log.set_log_start_offset(RECORDS - 20)
    place.take_checkpoint().run()

    await place.lower()
    place.cut_and_grow()

    assert place.log.log_start_offset == CUT_AT
    assert place.reopen_after_a_kill().log_start_offset <= CUT_AT


async def test_a_recovery_point_that_was_taken_before_does_not_come_back(place: Place) -> None:
    older = place.take_checkpoint()

    await place.lower()
    older.run()
    place.cut_and_grow()

    assert place.reopen_after_a_kill().durable_end_offset <= CUT_AT


async def test_a_checkpoint_between_lowering_and_cut_is_lowered_too(place: Place) -> None:
    assert not place.truncation_checkpoints.may_truncate(place.log, CUT_AT)
    await place.run_waiting()
    place.take_checkpoint().run()

    await place.lower()
    place.cut_and_grow()

    assert place.reopen_after_a_kill().durable_end_offset <= CUT_AT


async def test_a_cut_that_no_checkpoint_knows_of_waits_for_nothing(place: Place) -> None:
    put(place.log, ("a", "1"))
    put(place.log, ("b", "1"))
    place.log.flush()

    assert place.truncation_checkpoints.may_truncate(place.log, RECORDS + 1)
    assert place.truncation_checkpoints.may_truncate(place.log, RECORDS)
    assert not place.waiting


async def test_a_batch_that_holds_the_offset_is_lowered_whole(place: Place) -> None:
    put(place.log, *((f"key{number}", "v") for number in range(10)))
    place.log.flush()
    place.take_checkpoint().run()

    await place.lower(RECORDS + 5)

    place.log.truncate_to(RECORDS + 5)
    assert place.log.log_end_offset == RECORDS
    for _ in range(RECORDS):
        put(place.log, ("new", "v"))
    assert place.reopen_after_a_kill().durable_end_offset == RECORDS


@pytest.mark.long("three hundred logs")
async def test_cuts_of_many_logs_wait_for_two_writes(place: Place) -> None:
    """A write for each would take seconds: each waits for the disk twice."""
    others = [place.manager.create_log("t", number, TOPIC_ID, PLAIN, NOW_MS) for number in range(1, 301)]
    for log in others:
        put(log, ("a", "1"))
        log.flush()
    place.take_checkpoint().run()

    asked = [place.truncation_checkpoints.may_truncate(log, 0) for log in others]
    writes_count = await place.run_waiting()

    assert not any(asked)
    assert writes_count == 2
    assert all(place.truncation_checkpoints.may_truncate(log, 0) for log in others)


async def test_a_process_without_descriptors_asks_again(place: Place) -> None:
    """No disk is at fault, and nothing was lowered."""
    assert not place.truncation_checkpoints.may_truncate(place.log, CUT_AT)
    shortage = StorageError("no", path=place.directory)
    shortage.__cause__ = OSError(errno.EMFILE, "Too many open files")
    place.waiting.pop()[1].set_exception(shortage)
    await asyncio.sleep(0)

    await place.lower()
    place.cut_and_grow()

    assert place.reopen_after_a_kill().durable_end_offset <= CUT_AT


async def test_what_comes_after_a_truncation_is_dirty_after_a_kill(compacted: Place) -> None:
    assert compacted.log.clean_end_offset == RECORDS

    assert not compacted.truncation_checkpoints.may_truncate(compacted.log, CUT_AT)
    assert not compacted.truncation_checkpoints.may_truncate(compacted.log, CUT_AT)
    await compacted.run_waiting()
    assert compacted.truncation_checkpoints.may_truncate(compacted.log, CUT_AT)
    compacted.cut_and_grow()

    assert compacted.log.clean_end_offset is not None and compacted.log.clean_end_offset <= CUT_AT
    reopened = compacted.reopen_after_a_kill()
    assert reopened.log_end_offset > RECORDS
    assert (reopened.clean_end_offset or 0) <= CUT_AT


async def test_a_checkpoint_that_was_taken_before_does_not_bring_it_back(compacted: Place) -> None:
    compacted.log.clean_end_offset = RECORDS - 1  # so that the checkpoint is written
    older = compacted.take_checkpoint()

    assert not compacted.truncation_checkpoints.may_truncate(compacted.log, CUT_AT)
    await compacted.run_waiting()
    older.run()
    compacted.cut_and_grow()

    assert (compacted.reopen_after_a_kill().clean_end_offset or 0) <= CUT_AT


async def test_a_later_checkpoint_names_the_lower_clean_end(compacted: Place) -> None:
    assert not compacted.truncation_checkpoints.may_truncate(compacted.log, CUT_AT)
    await compacted.run_waiting()
    compacted.cut_and_grow()
    clean_end = compacted.log.clean_end_offset

    compacted.take_checkpoint().run()

    assert compacted.reopen_after_a_kill().clean_end_offset == clean_end is not None


async def test_what_became_clean_meanwhile_falls_again(compacted: Place) -> None:
    assert not compacted.truncation_checkpoints.may_truncate(compacted.log, CUT_AT)
    compacted.log.clean_end_offset = RECORDS  # a compaction has ended
    await compacted.run_waiting()

    assert not compacted.truncation_checkpoints.may_truncate(compacted.log, CUT_AT)
    await compacted.run_waiting()

    assert compacted.truncation_checkpoints.may_truncate(compacted.log, CUT_AT)


async def test_above_the_clean_end_a_log_is_cut_at_once(compacted: Place) -> None:
    put(compacted.log, ("a", "1"), ("b", "1"))

    assert compacted.truncation_checkpoints.may_truncate(compacted.log, RECORDS)
    assert not compacted.waiting


async def test_a_disk_that_fails_is_told(compacted: Place) -> None:
    assert not compacted.truncation_checkpoints.may_truncate(compacted.log, CUT_AT)

    compacted.waiting[0][1].set_exception(StorageError("no", path=compacted.directory))
    await asyncio.sleep(0)

    assert compacted.failures == [compacted.directory]


async def test_a_checkpoint_beyond_the_log_s_end_is_gone_before_the_log_grows(compacted: Place) -> None:
    """Else a second kill would find a log that reaches so far."""
    compacted.log.truncate_to(CUT_AT)  # as recovery does with what is damaged
    compacted.log.flush()
    compacted.manager.unlock()
    compacted.manager = compacted.open()
    found = compacted.manager.find_log("t", 0)
    assert found is not None and found.clean_end_offset is None
    compacted.log = found

    compacted.cut_and_grow()

    assert compacted.reopen_after_a_kill().clean_end_offset is None
