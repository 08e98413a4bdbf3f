"""Which logs the cleaner takes, in which order, and what it does when their compaction fails or the log changes under it."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.background import cleaning_job as job
from broker.background.log_cleaner import CHECK_INTERVAL_MS, LogCleaner
from broker.loop.deferred import Deferred
from broker.observability.metrics import Metrics
from broker.server.cleaner_gauges import add_cleaner_gauges
from broker.server.metrics_http import render
from broker.worker.inline import InlineWorker
from broker.worker.jobs import Outcome
from broker.worker.lines import Lines
from config.server import ServerConfig
from config.server_rules import server_config
from config.topic import LogConfig
from storage.checkpoint import write_offset_checkpoint
from storage.disk import SYSTEM_DISK
from storage.errors import StorageError
from storage.log import Log
from storage.log_directory import CLEANER_CHECKPOINT
from storage.log_manager import LogManager
from tests.storage.compaction.logs import headers_of, last_values, pairs_of, plan_of, put, records_of
from tests.storage.conftest import NOW_MS, TOPIC_ID
from tests.support.clock import ManualClock

COMPACTED = LogConfig(cleanup_policy=("compact",), segment_bytes=1000, min_cleanable_dirty_ratio=0.5)


class Submitted(InlineWorker):
    """Notes whose logs it was given. `holds` keeps jobs from being done."""

    def __init__(self) -> None:
        super().__init__(lambda callback: asyncio.get_running_loop().call_soon(callback), Lines())
        self.directories: list[str] = []
        self.held: list[Deferred] = []
        self.holds = False

    def submit(self, name: str, arguments: Any, buffers: Any, *, is_short: bool) -> Deferred:
        if name == job.NAME:
            self.directories.append(arguments.plan.directory.name)
        if self.holds:
            self.held.append(Deferred())
            return self.held[-1]
        return super().submit(name, arguments, buffers, is_short=is_short)


def setting_of(config: ServerConfig) -> Callable[[str], float]:
    def number(name: str) -> float:
        value = config.value_of(name)
        assert isinstance(value, int | float)
        return value

    return number


class Cleaning:
    """A cleaner over logs that a test fills."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.clock = ManualClock()
        self.manager = LogManager([directory / "data"], random_source=random.Random(1))
        self.manager.open(config_of=lambda name: COMPACTED, now_ms=0)
        self.worker = Submitted()
        config: ServerConfig = server_config({"log.dirs": "/none", **settings})
        self.cleaner = LogCleaner(setting_of(config), self.clock, self.manager, [self.worker], SYSTEM_DISK)

    def log(self, topic: str, *values: int, config: LogConfig = COMPACTED) -> Log:
        """A log of which each segment but the active one has these keys' records, one after the other."""
        log = self.manager.create_log(topic, 0, TOPIC_ID, config, NOW_MS)
        for value in values:
            put(log, (f"key{value}", "v" * 50))
        log.roll(NOW_MS)
        return log

    async def clean(self) -> None:
        for log in self.manager.each_log():
            log.flush()
        await self.cleaner.clean(0)

    def gauges(self) -> str:
        metrics = Metrics()
        add_cleaner_gauges(metrics, self.cleaner, self.manager, self.clock)
        return render(metrics.snapshot()).decode()


@pytest.fixture
def cleaning(tmp_path: Path) -> Cleaning:
    return Cleaning(tmp_path)


async def test_logs_that_are_dirty_enough_are_compacted_the_dirtiest_first(cleaning: Cleaning) -> None:
    half = cleaning.log("half", *[1] * 20)
    await cleaning.clean()
    cleaning.worker.directories.clear()
    for _ in range(2):
        put(half, ("other", "v" * 150))
    half.roll(NOW_MS)
    cleaning.log("all", *[1] * 20)
    cleaning.log("plain", *[1] * 20, config=replace(COMPACTED, cleanup_policy=("delete",)))

    await cleaning.clean()

    assert cleaning.worker.directories == ["all-0", "half-0"]
    assert pairs_of(half) == [(19, "key1", "v" * 50), (21, "other", "v" * 150)]
    assert half.clean_end_offset == 22


async def test_a_log_that_is_hardly_dirty_waits(cleaning: Cleaning) -> None:
    log = cleaning.log("t", *range(20))
    await cleaning.clean()
    put(log, ("key1", "new"))
    log.roll(NOW_MS)

    await cleaning.clean()

    assert log.clean_end_offset == 20
    assert 0 < cleaning.cleaner.stats.max_dirty_ratio < 0.5


async def test_max_compaction_lag_takes_a_log_that_is_hardly_dirty(cleaning: Cleaning) -> None:
    config = replace(COMPACTED, max_compaction_lag_ms=1000)
    log = cleaning.log("t", *range(20), config=config)
    await cleaning.clean()
    put(log, ("key1", "new"), timestamp=cleaning.clock.now_ms() - 999, now_ms=cleaning.clock.now_ms())
    log.roll(NOW_MS)

    await cleaning.clean()
    assert log.clean_end_offset == 20

    cleaning.clock.advance(3000)
    await cleaning.clean()
    assert log.clean_end_offset == 21
    assert cleaning.cleaner.stats.max_overdue_ms == 0, "by the last look there was nothing left"


async def test_min_compaction_lag_keeps_what_is_young(cleaning: Cleaning) -> None:
    log = cleaning.log("t", config=replace(COMPACTED, min_compaction_lag_ms=1000))
    now_ms = cleaning.clock.now_ms()
    for timestamp in (now_ms - 1000, now_ms - 999):
        put(log, ("key", "1"), ("key", "2"), timestamp=timestamp, now_ms=now_ms)
        log.roll(NOW_MS)

    await cleaning.clean()

    assert [offset for offset, _, _ in pairs_of(log)] == [1, 2, 3]
    assert log.clean_end_offset == 2


async def test_a_log_that_cannot_be_compacted_is_set_aside_and_counted(cleaning: Cleaning, caplog: pytest.LogCaptureFixture) -> None:
    rotten, good = cleaning.log("rotten", *[1] * 20), cleaning.log("good", *[1] * 10)
    path = rotten.segments.first.log_path
    content = bytearray(path.read_bytes())
    content[80] ^= 1
    path.write_bytes(content)

    await cleaning.clean()
    await cleaning.clean()

    assert sorted(cleaning.worker.directories) == ["good-0", "rotten-0"]
    assert cleaning.cleaner.uncleanable_logs() == [rotten]
    assert [(line.exc_info, "topic=rotten partition=0 error=" in line.message) for line in caplog.records if line.levelname == "ERROR"] == [
        (None, True)
    ]
    gauges = cleaning.gauges()
    directory = cleaning.manager.directories[0].path
    assert f'kafka_log_logcleanermanager_uncleanable_partitions_count{{logdirectory="{directory}"}} 1' in gauges
    assert f'kafka_log_logcleanermanager_uncleanable_bytes{{logdirectory="{directory}"}} 0' not in gauges
    assert len(records_of(good)) == 1
    assert list(rotten.directory.glob("*.cleaned")) == []


async def begin(cleaning: Cleaning) -> asyncio.Task[None]:
    """A compaction that the worker has been given and not done."""
    cleaning.worker.holds = True
    task = asyncio.get_running_loop().create_task(cleaning.clean())
    while not cleaning.worker.held:
        await asyncio.sleep(0)
    return task


async def end(task: asyncio.Task[None], cleaning: Cleaning) -> None:
    for _ in range(10):
        await asyncio.sleep(0)
    cleaning.clock.advance(CHECK_INTERVAL_MS)
    await asyncio.wait_for(task, 60)


@pytest.mark.parametrize("change", ["truncated", "deleted", "stopped"])
async def test_a_compaction_ends_when_its_log_changes_or_the_broker_stops(cleaning: Cleaning, change: str) -> None:
    log = cleaning.log("t", *[1] * 20)
    task = await begin(cleaning)
    assert cleaning.cleaner.is_cleaning(log)
    changes: dict[str, Callable[[], Any]] = {
        "truncated": lambda: log.truncate_to(5),
        "deleted": lambda: cleaning.manager._logs.clear(),
        "stopped": cleaning.cleaner.stop,
    }

    changes[change]()
    if change == "truncated":
        cleaning.cleaner.stop()  # else it would begin again
    await end(task, cleaning)

    assert cleaning.worker.held[0].is_abandoned
    assert not cleaning.cleaner.is_cleaning(log)
    assert log.clean_end_offset is None


async def test_a_log_that_moves_between_directories_is_left_alone(tmp_path: Path) -> None:
    cleaning = Cleaning(tmp_path)
    log = cleaning.log("t", *[1] * 20)
    cleaning.manager.futures.add(log)

    await cleaning.clean()

    assert cleaning.worker.directories == []


async def test_nothing_counts_as_clean_before_the_swap_is_durable(cleaning: Cleaning) -> None:
    """A power cut may undo the renames of the swap. What stands then below the checkpoint would never be compacted."""
    log = cleaning.log("t", *[1] * 20)
    submit = cleaning.worker.submit

    def hold_after_the_compaction(*arguments: Any, **named: Any) -> Deferred:
        answer = submit(*arguments, **named)
        cleaning.worker.holds = True
        return answer

    cleaning.worker.submit = hold_after_the_compaction  # type: ignore[method-assign]
    task = asyncio.get_running_loop().create_task(cleaning.clean())
    while not cleaning.worker.held:
        await asyncio.sleep(0)
    assert len(records_of(log)) == 1
    assert log.clean_end_offset is None

    cleaning.worker.held[0].complete(Outcome(None, (), 0))
    await asyncio.wait_for(task, 60)

    assert log.clean_end_offset == 20


@pytest.mark.parametrize(("checkpoint", "found"), [(20, 20), (21, None)])
def test_a_checkpoint_beyond_the_log_s_end_counts_for_nothing(tmp_path: Path, checkpoint: int, found: int | None) -> None:
    """Also once the log has grown past it: what came then is not clean."""
    cleaning = Cleaning(tmp_path)
    log = cleaning.log("t", *range(20))
    cleaning.manager.close_clean()
    write_offset_checkpoint(log.directory.parent / CLEANER_CHECKPOINT, {("t", 0): checkpoint})

    reopened = Cleaning(tmp_path).manager.find_log("t", 0)

    assert reopened is not None
    assert reopened.clean_end_offset == found


async def test_a_disk_that_fails_is_told_as_one(cleaning: Cleaning) -> None:
    log = cleaning.log("t", *[1] * 20)
    task = await begin(cleaning)

    cleaning.worker.held[0].complete(StorageError("No space left on device", path=log.directory / "file"))

    with pytest.raises(StorageError) as caught:
        await task
    assert caught.value.path == log.directory
    assert cleaning.cleaner.uncleanable_logs() == []


async def test_a_process_that_cannot_be_started_is_no_fault_of_the_disk(cleaning: Cleaning) -> None:
    log = cleaning.log("t", *[1] * 20)
    task = await begin(cleaning)
    cleaning.worker.held[0].complete(OSError(errno.EAGAIN, "Resource temporarily unavailable"))
    await task
    assert log.clean_end_offset is None

    cleaning.worker.holds = False
    await cleaning.clean()

    assert log.clean_end_offset == 20


def test_the_job_tells_a_full_disk_as_the_log_s(tmp_path: Path) -> None:
    log = Cleaning(tmp_path).log("t", *[1] * 20)
    plan = plan_of(log)
    log.segments.first.log_path.unlink()

    with pytest.raises(StorageError) as caught:
        list(job.compact_log(job.CompactionJob(plan, None), ()))

    assert caught.value.path == log.directory


async def test_what_is_lost_of_the_cleaned_files_is_not_swapped_in(cleaning: Cleaning) -> None:
    """As a worker leaves it that had to take its work back."""
    log = cleaning.log("t", *range(20), *range(20))
    before = last_values(records_of(log))
    headers = headers_of(log)
    submit = cleaning.worker.submit

    def submit_and_lose(*arguments: Any, **named: Any) -> Deferred:
        answer, lost = submit(*arguments, **named), Deferred()

        def done(outcome: Any) -> None:
            for path in log.directory.glob("*.log.cleaned"):
                path.unlink()
            cleaning.cleaner.stop()
            lost.complete(outcome)

        answer.when_done(done)
        return lost

    cleaning.worker.submit = submit_and_lose  # type: ignore[method-assign]

    await cleaning.clean()

    assert (headers_of(log), last_values(records_of(log))) == (headers, before)
    assert log.clean_end_offset is None


def test_the_job_keeps_its_rate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = Cleaning(tmp_path).log("t", *[1] * 200)
    now_s, slept_s = [0.0], [0.0]

    def sleep(duration_s: float) -> None:
        now_s[0] += duration_s
        slept_s[0] += duration_s

    monkeypatch.setattr(job.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(job.time, "sleep", sleep)
    plan = plan_of(log)
    read_bytes = sum(segment.size_bytes for segment in plan.segments)
    steps = job.compact_log(job.CompactionJob(plan, 1000.0), ())
    try:
        while True:
            next(steps)
    except StopIteration as done:
        result = done.value[0]

    assert slept_s[0] == pytest.approx((2 * read_bytes + result.stats.written_bytes) / 1000.0, rel=0.05)
