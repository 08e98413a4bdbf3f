"""Starts on log directories that a crash, an operator or a tool left in an odd state: every valid batch is served, nothing stops."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.topic import LogConfig
from storage import log_opener
from storage.disk import SYSTEM_DISK
from storage.log import Log
from storage.log_manager import LogManager
from tests.storage.conftest import NOW_MS, TOPIC_ID, append_idempotent, delete_log, delete_pending, read_all_offsets, write_checkpoints

CONFIG = replace(LogConfig(), segment_bytes=2000, index_interval_bytes=200)
COUNT = 60


class KilledError(BaseException):
    """Stands for the moment after which the process did nothing more."""


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def start(*log_dirs: Path) -> LogManager:
    manager = LogManager(log_dirs, random_source=random.Random(1))
    manager.open(config_of=lambda topic: CONFIG, now_ms=NOW_MS)
    return manager


def fill(log_dir: Path, *, is_clean: bool) -> Path:
    """A partition of some segments, stopped cleanly or killed. Returns its directory."""
    manager = start(log_dir)
    log = manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for sequence in range(COUNT):
        append_idempotent(log, sequence)
        if sequence == COUNT // 2:
            log.flush()
            log.set_high_watermark(log.log_end_offset)
            write_checkpoints(manager)
    assert len(log.segments) > 4
    if is_clean:
        manager.close_clean()
    else:
        for each in manager.logs():
            each.abandon()
        manager.unlock()
    return log_dir / "t-0"


def check(log: Log | None, end_offset: int = COUNT) -> None:
    """All is there and usable: offsets, lookup by time, the duplicate window, the next append."""
    assert log is not None
    assert read_all_offsets(log) == list(range(log.log_start_offset, end_offset))
    assert log.log_end_offset == end_offset
    found = log.find_offset_by_timestamp(NOW_MS, end_offset=end_offset)
    assert found is not None and found.offset == log.log_start_offset
    assert append_idempotent(log, end_offset - 1).is_duplicate
    assert append_idempotent(log, end_offset).base_offset == end_offset


def found_log(manager: LogManager) -> Log:
    log = manager.find_log("t", 0)
    assert log is not None
    return log


def remove(pattern: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in directory.glob(pattern):
            path.unlink()

    return damage


def write_over(pattern: str, content: bytes) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in directory.glob(pattern):
            path.write_bytes(content)

    return damage


def cut(pattern: str, size_bytes: int) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in directory.glob(pattern):
            path.write_bytes(path.read_bytes()[:size_bytes])

    return damage


def swap_indexes(suffix: str) -> Callable[[Path], None]:
    """Each segment has the next one's index."""

    def damage(directory: Path) -> None:
        paths = sorted(directory.glob(f"*{suffix}"))
        contents = [path.read_bytes() for path in paths]
        for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
            path.write_bytes(content)

    return damage


def empty_newest_segment(directory: Path) -> None:
    """A segment that was rolled just before the crash: nothing of it was written out."""
    for suffix in (".log", ".index", ".timeindex"):
        (directory / f"{COUNT:020d}{suffix}").write_bytes(b"")


def stray_files(directory: Path) -> None:
    (directory / "notes.txt").write_text("hello")
    (directory / "00000000000000000003.log.bak").write_bytes(b"x")
    (directory / "123.log").write_bytes(b"x")
    (directory / "lost+found").mkdir()
    (directory / "00000000000000000007.index").write_bytes(bytes(8))
    (directory / f"{2**63 + 5:020d}.snapshot").write_bytes(b"x")
    (directory / "00000000000000000030.snapshot").write_bytes(b"broken")
    (directory / "leader-epoch-checkpoint.tmp").write_bytes(b"0\n")
    (directory.parent / "some directory").mkdir()
    (directory.parent / "t-x").mkdir()
    (directory.parent / "core.1234").write_bytes(b"x")
    (directory.parent / "lost+found").mkdir()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "nothing": lambda directory: None,
    "no offset indexes": remove("*.index"),
    "no time indexes": remove("*.timeindex"),
    "no indexes": remove("*.*index"),
    "no snapshots": remove("*.snapshot"),
    "empty snapshots": write_over("*.snapshot", b""),
    "empty indexes": write_over("*.*index", b""),
    "torn indexes": cut("*.*index", 13),
    "zero indexes": write_over("*.index", bytes(64)),
    "foreign offset indexes": swap_indexes(".index"),
    "foreign time indexes": swap_indexes(".timeindex"),
    "full of noise": write_over("*.*index", random.Random(3).randbytes(96)),
    "no epochs": remove("leader-epoch-checkpoint"),
    "empty epochs": write_over("leader-epoch-checkpoint", b""),
    "torn epochs": cut("leader-epoch-checkpoint", 3),
    "noise for epochs": write_over("leader-epoch-checkpoint", b"\xff\xfe\x00"),
    "no partition.metadata": remove("partition.metadata"),
    "empty partition.metadata": write_over("partition.metadata", b""),
    "empty newest segment": empty_newest_segment,
    "strays": stray_files,
    "no checkpoints": lambda directory: remove("*-checkpoint")(directory.parent),
    "empty checkpoints": lambda directory: write_over("*-checkpoint", b"")(directory.parent),
    "torn checkpoints": lambda directory: cut("*-checkpoint", 6)(directory.parent),
    "noise for checkpoints": lambda directory: write_over("*-checkpoint", b"\xff\x00x")(directory.parent),
    "recovery point beyond the end": lambda directory: write_over("recovery-point*", b"0\n1\nt 0 100000\n")(directory.parent),
    "negative recovery point": lambda directory: write_over("recovery-point*", b"0\n1\nt 0 -5\n")(directory.parent),
    "high watermark beyond the end": lambda directory: write_over("replication*", b"0\n1\nt 0 100000\n")(directory.parent),
    "a checkpoint's temporary file": lambda directory: (directory.parent / "recovery-point-offset-checkpoint.tmp").mkdir(),
}


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_directory_is_served_whole(log_dir: Path, damage: Callable[[Path], None], is_clean: bool) -> None:
    damage(fill(log_dir, is_clean=is_clean))

    manager = start(log_dir)

    assert manager.online_directories
    check(manager.find_log("t", 0))
    manager.close_clean()


@pytest.mark.parametrize("left_bytes", [0, 7])
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_epochs_of_a_torn_checkpoint_are_read_from_the_batches(log_dir: Path, is_clean: bool, left_bytes: int) -> None:
    """Kafka takes the directory offline; the batches of every segment say the same."""
    manager = start(log_dir)
    log = manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for sequence in range(COUNT):
        append_idempotent(log, sequence, leader_epoch=sequence // 25)
    entries = log.leader_epochs.entries()
    if is_clean:
        manager.close_clean()
    else:
        log.abandon()
        manager.unlock()
    cut("leader-epoch-checkpoint", left_bytes)(log.directory)

    log = found_log(start(log_dir))

    assert [entry.epoch for entry in entries] == [0, 1, 2]
    assert log.leader_epochs.entries() == entries
    assert log_opener.open_log(log.directory, "t", 0, TOPIC_ID, CONFIG, now_ms=NOW_MS).leader_epochs.entries() == entries


def test_kill_during_recovery_changes_nothing(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at the first file that recovery changes, then at the second, and so on until one recovery gets through."""
    directory = fill(log_dir, is_clean=False)
    newest = max(directory.glob("*.log"))
    newest.write_bytes(newest.read_bytes() + b"torn")
    kills_count = 0
    manager = LogManager([log_dir], random_source=random.Random(1))
    while not try_open(manager, monkeypatch, calls_max=kills_count):
        kills_count += 1

    assert kills_count > 10
    check(manager.find_log("t", 0))


def try_open(manager: LogManager, monkeypatch: pytest.MonkeyPatch, *, calls_max: int) -> bool:
    """Open it, killed after `calls_max` calls that change the directory. Returns whether it got through."""
    calls_left = calls_max

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            nonlocal calls_left
            if calls_left == 0:
                raise KilledError
            calls_left -= 1
            return call(*arguments, **named)

        return called

    with monkeypatch.context() as patch:
        for name in ("write", "pwrite", "ftruncate", "replace", "unlink"):
            patch.setattr(SYSTEM_DISK, name, dying(getattr(SYSTEM_DISK, name)))
        try:
            manager.open(config_of=lambda topic: CONFIG, now_ms=NOW_MS)
        except KilledError:
            manager.unlock()
            return False
    return True


def test_partition_whose_deletion_was_cut_short_goes(log_dir: Path) -> None:
    manager = start(log_dir)
    manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    delete_log(manager, "t", 0)
    manager.unlock()
    (leftover,) = log_dir.glob("t-0.*-delete")
    (log_dir / ("x" * 200 + f"-7.{5:032x}-delete")).mkdir()

    restarted = start(log_dir)
    delete_pending(restarted, NOW_MS)

    assert restarted.logs() == []
    assert not leftover.exists() and not list(log_dir.glob("*-delete"))


def test_missing_segment_in_the_middle_of_a_killed_log_costs_its_own_records_only(log_dir: Path) -> None:
    """As in Kafka: nothing in the files tells such a hole from one that compaction left."""
    directory = fill(log_dir, is_clean=False)
    paths = sorted(directory.glob("*.log"))
    missing = range(int(paths[-2].stem), int(paths[-1].stem))
    paths[-2].unlink()

    log = found_log(start(log_dir))

    assert read_all_offsets(log) == [offset for offset in range(COUNT) if offset not in missing]
    assert log.log_end_offset == COUNT


@pytest.mark.parametrize(
    ("place", "said"), [(0, "starts at offset"), (-1, "ends at offset"), (slice(None), "has no segment")], ids=["first", "last", "all"]
)
def test_segments_that_are_missing_after_a_clean_stop_are_said_in_the_log(
    log_dir: Path, place: int | slice, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    paths = sorted(fill(log_dir, is_clean=True).glob("*.log"))
    for path in paths[place] if isinstance(place, slice) else [paths[place]]:
        path.unlink()

    log = found_log(start(log_dir))

    assert read_all_offsets(log) == list(range(log.log_start_offset, log.log_end_offset))
    assert [record.message for record in caplog.records if said in record.message and "missing" in record.message]


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_whole_directory_has_nothing_to_say_in_the_log(log_dir: Path, is_clean: bool, caplog: pytest.LogCaptureFixture) -> None:
    fill(log_dir, is_clean=is_clean)
    manager = start(log_dir)
    log = found_log(manager)
    log.set_high_watermark(COUNT)
    log.update_config(replace(CONFIG, retention_bytes=3000))
    assert log.delete_old_segments(NOW_MS) > 0
    if is_clean:
        manager.close_clean()
    else:
        log.abandon()
        manager.unlock()

    start(log_dir)

    assert caplog.records == []
