"""storage/ on the simulated disk: what it calls durable survives every power cut, what it acknowledged every kill, and no error of the
disk loses what was flushed before it. Nothing of it touches this machine's disk: there is no such directory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from config.topic import LogConfig
from protocol.records import SimpleRecord, build_batch, iterate_headers
from storage.errors import StorageError
from storage.files import delete_tree
from storage.flush import FlushWork
from storage.log import Log
from storage.log_manager import LogManager
from tests.simulation.disk import DiskView, SimulatedDisk
from tests.storage.conftest import delete_log, delete_pending, read_bytes, write_checkpoints

pytestmark = pytest.mark.long("simulated worlds")

LOG_DIR = Path("/simulated/logs")
CONFIG = replace(LogConfig(), segment_bytes=2_000, index_interval_bytes=300, file_delete_delay_ms=0)
TOPIC_ID = bytes(range(16))
NOW_MS = 1_750_000_000_000
SEEDS = 40


class World:
    """One disk, the broker process that uses it, and the batches that it appended."""

    def __init__(self, seed: int = 0) -> None:
        self.draw = random.Random(seed)
        self.disk = SimulatedDisk(self.draw, lambda: NOW_MS / 1000, lambda kind, text: None)
        self.appended: list[bytes] = []
        self.durable_count = 0
        self.start()

    def start(self) -> None:
        self.view = self.disk.boot()
        self.manager = LogManager([LOG_DIR], random_source=random.Random(1), disk=self.view)
        self.manager.open(config_of=lambda topic: CONFIG, now_ms=NOW_MS)

    @property
    def log(self) -> Log:
        return self.manager.find_log("t", 0) or self.manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)

    def append(self) -> None:
        log = self.log
        end, producer = log.log_end_offset, log.producers.producers.get(7)
        sequence = 0 if producer is None else producer.last_sequence + 1  # after a cut that left a hole not the end offset
        records = [SimpleRecord(b"k", b"%d" % end * self.draw.randrange(1, 40), (), NOW_MS)] * self.draw.randrange(1, 4)
        batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(memoryview(batch), leader_epoch=end // 20, now_ms=NOW_MS)
        log.set_high_watermark(log.log_end_offset)
        self.appended.append(read_bytes(log, end))

    def flush(self) -> None:
        self.log.flush()
        self.durable_count = len(self.appended)

    def live(self) -> None:
        """Some appends, flushes and checkpoints in an order that the seed draws."""
        for _ in range(self.draw.randrange(5, 60)):
            self.append()
            if self.draw.random() < 0.15:
                self.flush()
            if self.draw.random() < 0.1:
                write_checkpoints(self.manager)

    def kill(self) -> None:
        self.view.die()
        self.start()

    def cut_power(self) -> None:
        self.view.die()
        self.disk.cut_power()
        self.start()
        self.appended = read_batches(self.log)


def read_batches(log: Log) -> list[bytes]:
    found: list[bytes] = []
    offset = log.log_start_offset
    while data := read_bytes(log, offset):
        for position, header in iterate_headers(data):
            found.append(data[position : position + header.size_bytes])
            offset = header.next_offset
    return found


def test_a_kill_loses_nothing_that_was_appended() -> None:
    for seed in range(SEEDS):
        world = World(seed)
        for _ in range(3):
            world.live()
            world.kill()

            assert read_batches(world.log) == world.appended, seed


def test_a_power_cut_keeps_what_was_flushed_and_nothing_that_was_not_appended() -> None:
    for seed in range(SEEDS):
        world = World(seed)
        for _ in range(3):
            world.live()
            appended, durable_count = world.appended, world.durable_count
            world.cut_power()

            found = read_batches(world.log)
            assert found[:durable_count] == appended[:durable_count], seed
            assert set(found) <= set(appended), seed  # a hole may be left, as compaction leaves them: see storage/recovery.py


def test_a_clean_stop_keeps_everything_through_a_power_cut() -> None:
    for seed in range(SEEDS):
        world = World(seed)
        world.live()
        appended = world.appended
        world.manager.close_clean()
        world.cut_power()

        assert world.manager.directories[0].was_clean_stop
        assert read_batches(world.log) == appended, seed


class EpochsWorld(World):
    """Epochs begin, with records and without, and the log is cut, as a follower cuts it, whose leader then goes on in an older epoch
    perhaps. Several flushes are under way at once, which end in any order."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.flushes: list[FlushWork] = []
        self.epoch = 0
        self.log.set_high_watermark(0)

    def append(self) -> None:
        log = self.log
        batch = build_batch([SimpleRecord(b"k", b"v" * self.draw.randrange(1, 300), (), NOW_MS)])
        log.append_as_leader(memoryview(batch), leader_epoch=self.epoch, now_ms=NOW_MS)

    def begin_epoch(self) -> None:
        self.epoch += self.draw.randrange(1, 3)
        if self.draw.random() < 0.5:
            self.log.assign_leader_epoch(self.epoch)

    def cut(self) -> None:
        log = self.log
        if log.log_end_offset == 0:
            return
        offset = self.draw.randrange(log.log_end_offset)
        (directory,) = self.manager.online_directories
        directory.take_lowering({("t", 0): offset}).run()  # as TruncationCheckpoints has it done
        log.truncate_to(offset, now_ms=NOW_MS)
        if self.draw.random() < 0.2:
            log.truncate_fully_and_start_at(offset, now_ms=NOW_MS)
        self.epoch = self.draw.randrange(log.leader_epochs.latest_epoch or 0, self.epoch + 1)

    def take_flush(self) -> None:
        work = self.log.take_flush()
        if work is not None:
            self.flushes.append(work)

    def end_flush(self) -> None:
        if self.flushes:
            work = self.flushes.pop(self.draw.randrange(len(self.flushes)))
            work.run()
            self.log.flushed(work)

    def live(self) -> None:
        self.epoch = max(self.epoch, self.log.leader_epochs.latest_epoch or 0)  # a power cut may have undone a cut
        steps = [self.append] * 6 + [self.begin_epoch, self.cut, self.take_flush, self.end_flush, self.end_flush]
        for _ in range(self.draw.randrange(5, 60)):
            self.draw.choice(steps)()
            if self.draw.random() < 0.1:
                write_checkpoints(self.manager)

    def start(self) -> None:
        super().start()
        self.flushes = []

    def epochs(self) -> tuple[list[int], list[int | None]]:
        """Those of the log's batches, and what the cache says of each."""
        headers = [header for segment in self.log.segments for _, header in segment.iterate_batches()]
        known = [self.log.leader_epochs.find_epoch_for_offset(header.base_offset) for header in headers]
        return [header.partition_leader_epoch for header in headers], known


def test_the_epochs_are_those_of_the_batches_after_every_kill_and_power_cut() -> None:
    """The file of the epochs is written by flushes alone; what it lacks or has too much is told by the batches."""
    checked_count = 0
    for seed in range(5 * SEEDS):
        world = EpochsWorld(seed)
        for _ in range(4):
            world.live()
            world.draw.choice((world.kill, world.cut_power))()

            held, known = world.epochs()
            assert known == held, seed
            checked_count += len(set(held))
    assert checked_count > 5 * SEEDS


def test_retries_after_a_power_cut_are_known_as_such() -> None:
    for seed in range(SEEDS):
        world = World(seed)
        world.live()
        world.append()
        world.flush()
        world.cut_power()

        log = world.log
        last = log.producers.producers[7].batches[-1]
        assert last.last_offset == log.log_end_offset - 1, seed


def test_a_full_disk_refuses_an_append_and_keeps_what_was_there() -> None:
    for seed in range(SEEDS):
        world = World(seed)
        world.live()
        world.flush()
        world.disk.capacity_bytes = world.disk.used_bytes + world.draw.randrange(2_000)
        with pytest.raises(StorageError):
            while True:
                world.append()
        world.disk.capacity_bytes = None
        world.kill()

        assert read_batches(world.log)[: len(world.appended)] == world.appended, seed


def test_writes_that_fail_lose_nothing_that_was_appended_before() -> None:
    for seed in range(SEEDS):
        world = World(seed)
        world.live()
        world.disk.write_error_share = 0.2
        with pytest.raises(StorageError):
            while True:
                world.append()
        world.disk.write_error_share = 0.0
        world.kill()

        assert read_batches(world.log)[: len(world.appended)] == world.appended, seed


def test_a_sync_that_fails_makes_nothing_durable() -> None:
    world = World()
    world.append()
    world.flush()
    world.append()
    recovery_point = world.log.recovery_point
    world.disk.sync_error_share = 1.0

    with pytest.raises(StorageError):
        world.log.flush()

    assert world.log.recovery_point == recovery_point < world.log.log_end_offset


def test_a_deleted_log_leaves_nothing_behind() -> None:
    world = World()
    world.live()
    write_checkpoints(world.manager)

    delete_log(world.manager, "t", 0)
    delete_pending(world.manager, NOW_MS)

    assert not [line for line in _tree(world.view, str(LOG_DIR)) if "t-0" in line]


def test_a_second_process_does_not_get_the_directory() -> None:
    world = World()
    second = LogManager([LOG_DIR], random_source=random.Random(1), disk=world.disk.boot())

    with pytest.raises(StorageError, match="in use by another broker"):
        second.lock()


@pytest.mark.parametrize("crash", [World.kill, World.cut_power], ids=["kill", "power cut"])
def test_no_descriptor_is_left_open(crash: Callable[[World], None]) -> None:
    world = World()
    world.live()
    crash(world)
    world.live()

    world.manager.close_clean()

    assert world.view.open_count == 0
    assert not LOG_DIR.exists()


def test_a_tree_is_deleted_here_too() -> None:
    world = World()
    world.live()
    world.manager.close_clean()

    delete_tree(LOG_DIR, world.view)

    assert not world.view.exists(LOG_DIR)


def _tree(view: DiskView, path: str, *, indent: str = "") -> Iterator[str]:
    """The directory's entries with sizes, for a failing seed's report."""
    for entry in view.scan(path):
        size = "/" if entry.is_directory else view.stat(f"{path}/{entry.name}").st_size
        yield f"{indent}{entry.name} {size}"
        if entry.is_directory:
            yield from _tree(view, f"{path}/{entry.name}", indent=indent + "  ")
