"""LogManager: directories, restart from checkpoints, deletion, strays, one failing disk."""

from __future__ import annotations

import gc
import os
import random
import shutil
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.topic import LogConfig
from storage.checkpoint import read_offset_checkpoint
from storage.disk import SYSTEM_DISK
from storage.errors import StorageError
from storage.log_manager import LogManager
from storage.meta_properties import MetaProperties, write_clean_shutdown, write_meta_properties
from tests.storage.conftest import (
    NOW_MS,
    TOPIC_ID,
    append,
    append_idempotent,
    delete_log,
    delete_pending,
    enforce_retention,
    read_all_offsets,
    write_checkpoints,
)
from tests.support.turns import finished

CONFIG = replace(LogConfig(), segment_bytes=2000, file_delete_delay_ms=1000)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


def start(*log_dirs: Path, **arguments: Any) -> LogManager:
    failures = arguments.pop("on_directory_failure", None)
    open_segments_max = arguments.pop("open_segments_max", 5)
    config = arguments.pop("config", CONFIG)
    manager = LogManager(log_dirs, random_source=random.Random(1), open_segments_max=open_segments_max, on_directory_failure=failures)
    manager.open(config_of=lambda topic: config, now_ms=NOW_MS, **arguments)
    return manager


def kill(manager: LogManager) -> None:
    """What the kernel does for a killed process."""
    for log in manager.logs():
        log.abandon()
    manager.unlock()


def test_created_log_is_found_again_after_a_kill(log_dir: Path) -> None:
    manager = start(log_dir)
    log = manager.create_log("t", 3, TOPIC_ID, CONFIG, NOW_MS)
    append(log, 5)
    kill(manager)

    found = start(log_dir).find_log("t", 3)

    assert found is not None
    assert (found.topic_id, found.log_end_offset, found.high_watermark) == (TOPIC_ID, 5, 0)


def test_another_topics_log_of_the_same_name_is_refused(log_dir: Path) -> None:
    manager = start(log_dir)
    log = manager.create_log("t", 3, TOPIC_ID, CONFIG, NOW_MS)

    with pytest.raises(StorageError, match="t-3 is of topic id"):
        manager.create_log("t", 3, bytes(15) + b"x", CONFIG, NOW_MS)

    assert manager.create_log("t", 3, TOPIC_ID, CONFIG, NOW_MS) is log


def test_closed_segments_of_all_logs_share_one_limit(log_dir: Path) -> None:
    """Neither readers nor the retention check of many partitions may use up the process's descriptors."""
    manager = start(log_dir)
    logs = [manager.create_log("t", index, TOPIC_ID, CONFIG, NOW_MS) for index in range(6)]
    for log in logs:
        append(log, 40, size=1)
        for _ in range(40):
            append(log)
    manager.close_clean()

    manager = start(log_dir, open_segments_max=5)
    assert enforce_retention(manager, NOW_MS) == 0
    for log in manager.logs():
        read_all_offsets(log)

    closed = [segment for log in manager.logs() for segment in log.segments if not segment.is_active]
    assert len(closed) > 12
    assert sum(segment.is_loaded for segment in closed) <= 5


def test_create_log_returns_the_log_that_is_there(log_dir: Path) -> None:
    manager = start(log_dir)

    assert manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS) is manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)


def test_clean_stop_keeps_watermarks_and_duplicate_window_without_a_scan(log_dir: Path) -> None:
    manager = start(log_dir)
    log = manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for sequence in range(60):
        append_idempotent(log, sequence)
    log.set_high_watermark(60)
    log.set_log_start_offset(17)
    manager.close_clean(broker_epoch=5)
    first = next(path for path in sorted((log_dir / "t-0").glob("*.log")))
    damaged = bytearray(first.read_bytes())
    damaged[-1] ^= 1  # only a scan would notice
    first.write_bytes(damaged)

    reopened = start(log_dir)

    found = reopened.find_log("t", 0)
    assert found is not None
    assert reopened.directories[0].clean_shutdown_epoch == 5
    assert (found.log_start_offset, found.log_end_offset, found.high_watermark, found.recovery_point) == (17, 60, 60, 60)
    assert append_idempotent(found, 56).is_duplicate


def test_the_epoch_of_the_last_clean_stop_is_known_if_every_directory_has_it(tmp_path: Path) -> None:
    """KIP-966: a broker whose machine lost its power, or a disk of it, is no eligible leader."""
    log_dirs = [tmp_path / "a", tmp_path / "b"]

    def stop_and_start(*ended: int | None) -> int:
        for log_dir, epoch in zip(log_dirs, ended, strict=True):
            log_dir.mkdir(exist_ok=True)
            if epoch is not None:
                write_clean_shutdown(log_dir, broker_epoch=epoch)
        manager = LogManager(log_dirs, random_source=random.Random(1))
        manager.lock()
        manager.open(config_of=lambda topic: CONFIG, topic_id_of=lambda topic, index: TOPIC_ID, now_ms=NOW_MS)
        manager.unlock()
        return manager.clean_shutdown_epoch

    assert [stop_and_start(5, 5), stop_and_start(5, None), stop_and_start(5, 6), stop_and_start(None, None)] == [5, -1, -1, -1]


def test_clean_stop_without_syncfs_synchronises_file_by_file(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SYSTEM_DISK, "can_syncfs", lambda: False)
    manager = start(log_dir)
    append_idempotent(manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS), 0)

    manager.close_clean()

    restarted = start(log_dir)
    found = restarted.find_log("t", 0)
    assert found is not None
    assert (restarted.directories[0].was_clean_stop, found.recovery_point) == (True, 1)
    assert append_idempotent(found, 0).is_duplicate


def test_stop_that_cannot_synchronise_leaves_no_marker(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = start(log_dir)
    append(manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS))

    def failing_syncfs(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(SYSTEM_DISK, "syncfs", failing_syncfs)
    manager.close_clean()

    assert not (log_dir / ".kafka_cleanshutdown").exists()
    assert not (log_dir / "recovery-point-offset-checkpoint").exists()


def test_marker_of_a_clean_stop_counts_once(log_dir: Path) -> None:
    start(log_dir).close_clean()

    restarted = start(log_dir)
    was_clean = restarted.directories[0].was_clean_stop
    kill(restarted)

    assert was_clean
    assert not start(log_dir).directories[0].was_clean_stop


def test_checkpoints_are_kafkas_files(log_dir: Path) -> None:
    manager = start(log_dir)
    log = manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    append(log, 5)
    log.set_high_watermark(4)
    log.set_log_start_offset(2)
    log.flush()

    write_checkpoints(manager)

    assert read_offset_checkpoint(log_dir / "recovery-point-offset-checkpoint") == {("t", 0): 5}
    assert read_offset_checkpoint(log_dir / "replication-offset-checkpoint") == {("t", 0): 4}
    assert read_offset_checkpoint(log_dir / "log-start-offset-checkpoint") == {("t", 0): 2}


def test_an_older_checkpoint_never_replaces_a_newer_one(log_dir: Path) -> None:
    manager = start(log_dir)
    log = manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    older = manager.take_checkpoints()
    append(log, 5)
    log.set_high_watermark(5)
    newer = manager.take_checkpoints()

    for work in newer + older:
        work.run()

    assert read_offset_checkpoint(log_dir / "replication-offset-checkpoint") == {("t", 0): 5}


def test_checkpoints_written_by_several_threads_at_once_stay_whole(log_dir: Path) -> None:
    manager = start(log_dir)
    manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    works = [work for _ in range(40) for work in manager.take_checkpoints()]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda work: work.run(), works))

    assert read_offset_checkpoint(log_dir / "recovery-point-offset-checkpoint") == {("t", 0): 0}


def test_checkpointed_watermarks_survive_a_kill(log_dir: Path) -> None:
    manager = start(log_dir)
    log = manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    append(log, 5)
    log.set_high_watermark(4)
    log.set_log_start_offset(2)
    write_checkpoints(manager)
    kill(manager)

    found = start(log_dir).find_log("t", 0)

    assert found is not None
    assert (found.log_start_offset, found.high_watermark, found.log_end_offset) == (2, 4, 5)


def test_what_a_kill_left_of_a_flushed_topic_is_durable_before_it_is_served(log_dir: Path) -> None:
    """Else its high watermark would begin below what was acknowledged: a coordinator would answer without the newest commits."""
    config = replace(CONFIG, flush_messages=1)
    manager = start(log_dir, config=config)
    append(manager.create_log("t", 0, TOPIC_ID, config, NOW_MS), 5)
    kill(manager)

    found = start(log_dir, config=config).find_log("t", 0)

    assert found is not None
    assert found.durable_end_offset == 5


def test_second_broker_on_a_directory_is_refused(log_dir: Path) -> None:
    start(log_dir)

    with pytest.raises(StorageError, match="in use by another broker"):
        start(log_dir)


def test_directories_of_different_clusters_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_meta_properties(tmp_path / name, MetaProperties(cluster_id=name, node_id=1, directory_id=None))

    with pytest.raises(StorageError, match="different clusters"):
        start(tmp_path / "a", tmp_path / "b")


def test_new_logs_go_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")

    for partition in range(4):
        manager.create_log("t", partition, TOPIC_ID, CONFIG, NOW_MS)

    assert [log.directory.parent.name for log in manager.logs()] == ["a", "b", "a", "b"]


def test_new_logs_go_to_no_cordoned_directory_while_there_is_another(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    manager = start(*paths)

    def places(*partitions: int) -> list[str]:
        return [manager.create_log("t", partition, TOPIC_ID, CONFIG, NOW_MS).directory.parent.name for partition in partitions]

    manager.cordon([str(paths[0])])
    one_cordoned = places(0, 1)
    manager.cordon(map(str, paths))
    all_cordoned = places(2, 3, 4, 5)
    manager.cordon([])

    assert (one_cordoned, all_cordoned) == (["b", "b"], ["a"] * 4)
    assert places(6, 7, 8) == ["b", "b", "a"]


def test_deleted_log_is_renamed_at_once_and_removed_after_the_delay(log_dir: Path) -> None:
    manager = start(log_dir)
    append(manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS))

    delete_log(manager, "t", 0)
    renamed = [path.name for path in log_dir.iterdir() if path.is_dir()]
    delete_pending(manager, NOW_MS)
    delete_pending(manager, NOW_MS + 999)
    still_there = [path for path in log_dir.iterdir() if path.is_dir()]
    delete_pending(manager, NOW_MS + 1000)

    assert manager.find_log("t", 0) is None
    assert len(renamed) == 1
    assert renamed[0].startswith("t-0.")
    assert renamed[0].endswith("-delete")
    assert len(still_there) == 1
    assert [path for path in log_dir.iterdir() if path.is_dir()] == []


def test_many_deleted_logs_are_all_removed_after_their_own_delays(log_dir: Path) -> None:
    manager = start(log_dir)
    for topic, delay_ms in (("early", 1000), ("late", 3000)):
        for partition in range(5):
            manager.create_log(topic, partition, TOPIC_ID, replace(CONFIG, file_delete_delay_ms=delay_ms), NOW_MS)
    for work in finished(manager.delete_logs((log.topic, log.partition) for log in manager.logs())):
        work.run()
        manager.removed(work)

    left = []
    for now_ms in (NOW_MS, NOW_MS + 1000, NOW_MS + 3000):
        delete_pending(manager, now_ms)
        left.append(sorted({path.name[:4] for path in log_dir.iterdir() if path.is_dir()}))

    assert left == [["earl", "late"], ["late"], []]


@pytest.mark.parametrize("cluster_id", [None, bytes(range(1, 17))])
def test_logs_of_unknown_topics_or_other_topic_ids_are_set_aside(log_dir: Path, cluster_id: bytes | None) -> None:
    manager = start(log_dir)
    append(manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS))
    kill(manager)

    restarted = start(log_dir, topic_id_of=lambda topic, index: cluster_id)

    assert restarted.find_log("t", 0) is None
    assert [path.name.rpartition("-")[2] for path in log_dir.iterdir() if path.is_dir()] == ["stray"]
    assert next(log_dir.glob("*-stray/*.log")).stat().st_size > 0


def test_log_of_a_partition_that_has_no_replica_here_any_more_is_set_aside(log_dir: Path) -> None:
    manager = start(log_dir)
    for partition in range(2):
        append(manager.create_log("t", partition, TOPIC_ID, CONFIG, NOW_MS))
    kill(manager)

    restarted = start(log_dir, topic_id_of=lambda topic, index: TOPIC_ID if index == 0 else None)

    assert [(log.topic, log.partition) for log in restarted.logs()] == [("t", 0)]
    assert [path.name.partition(".")[0] for path in log_dir.glob("*-stray")] == ["t-1"]


def test_log_that_is_set_aside_leaves_its_name_and_keeps_its_records(log_dir: Path) -> None:
    manager = start(log_dir)
    append(manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS), 5)
    write_checkpoints(manager)

    manager.set_aside("t", 0)
    log = manager.create_log("t", 0, bytes(15) + b"x", CONFIG, NOW_MS)
    delete_pending(manager, NOW_MS + CONFIG.file_delete_delay_ms)

    assert (log.log_end_offset, manager.find_log("t", 0)) == (0, log)
    assert next(log_dir.glob("t-0.*-stray/*.log")).stat().st_size > 0
    assert ("t", 0) not in read_offset_checkpoint(log_dir / "recovery-point-offset-checkpoint")


def test_partition_metadata_lost_in_a_power_cut_is_written_again(log_dir: Path) -> None:
    manager = start(log_dir)
    append(manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS))
    kill(manager)
    (log_dir / "t-0" / "partition.metadata").write_bytes(b"")

    found = start(log_dir, topic_id_of=lambda topic, index: TOPIC_ID).find_log("t", 0)

    assert found is not None
    assert found.topic_id == TOPIC_ID
    assert (log_dir / "t-0" / "partition.metadata").stat().st_size > 0


def test_metadata_log_and_foreign_directories_are_left_alone(log_dir: Path) -> None:
    for name in ("__cluster_metadata-0", "lost+found", "t-0.0123456789abcdef0123456789abcdef-stray"):
        (log_dir / name).mkdir(parents=True)

    manager = start(log_dir)

    assert manager.logs() == []
    assert len([path for path in log_dir.iterdir() if path.is_dir()]) == 3


def test_one_failing_directory_takes_only_its_own_logs_offline(tmp_path: Path) -> None:
    failed: list[Path] = []
    manager = start(tmp_path / "a", tmp_path / "b", on_directory_failure=lambda path, error: failed.append(path))
    for partition in range(4):
        append(manager.create_log("t", partition, TOPIC_ID, CONFIG, NOW_MS))

    manager.mark_offline(tmp_path / "a", StorageError("gone"))
    write_checkpoints(manager)

    assert failed == [tmp_path / "a"]
    assert [log.partition for log in manager.logs()] == [1, 3]
    assert manager.create_log("t", 9, TOPIC_ID, CONFIG, NOW_MS).directory.parent == tmp_path / "b"
    assert not (tmp_path / "a" / "recovery-point-offset-checkpoint").exists()


def test_retention_check_leaves_an_idle_active_segment_alone(tmp_path: Path) -> None:
    """As Kafka's: it is rolled by the next append, or once it is to be deleted itself."""
    manager = start(tmp_path)
    day_ms = 86_400_000
    config = replace(CONFIG, segment_bytes=1_000_000, segment_ms=1_000, retention_ms=day_ms)
    log = manager.create_log("t", 0, TOPIC_ID, config, NOW_MS)
    append(log)
    log.set_high_watermark(1)

    assert enforce_retention(manager, NOW_MS + day_ms) == 0
    assert [segment.base_offset for segment in log.segments] == [0]
    assert enforce_retention(manager, NOW_MS + day_ms + 1) == 1
    assert [segment.base_offset for segment in log.segments] == [1]


def test_failing_disk_at_retention_takes_the_directory_offline(tmp_path: Path) -> None:
    manager = start(tmp_path / "a", tmp_path / "b")
    for partition in range(2):
        log = manager.create_log("t", partition, TOPIC_ID, replace(CONFIG, retention_bytes=0), NOW_MS)
        for _ in range(30):
            append(log)
        log.set_high_watermark(30)
    shutil.rmtree(tmp_path / "a" / "t-0")

    count = enforce_retention(manager, NOW_MS)

    assert [log.partition for log in manager.logs()] == [1]
    assert count > 0


def test_same_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    manager = start(tmp_path / "a")
    append(manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS))
    manager.close_clean()
    (tmp_path / "b").mkdir()
    shutil.copytree(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")

    both = start(tmp_path / "a", tmp_path / "b")

    assert [directory.is_offline for directory in both.directories] == [False, True]


def test_update_config_reaches_every_partition_of_the_topic(log_dir: Path) -> None:
    manager = start(log_dir)
    for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
        manager.create_log(topic, partition, TOPIC_ID, CONFIG, NOW_MS)

    manager.update_config("t", replace(CONFIG, retention_ms=5))

    assert [log.config.retention_ms for log in manager.logs()] == [5, 5, CONFIG.retention_ms]


def test_clean_stop_synchronises_no_log_by_itself(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One syncfs is for all: 9,000 partitions with an epoch file to synchronise each took 8 s."""
    manager = start(log_dir)
    for index in range(20):
        log = manager.create_log("t", index, TOPIC_ID, CONFIG, NOW_MS)
        log.assign_leader_epoch(0)
        append(log)
    fsyncs: list[int] = []
    monkeypatch.setattr(SYSTEM_DISK, "fsync", fsyncs.append)

    manager.close_clean()

    assert len(fsyncs) < 20
    found = start(log_dir).find_log("t", 19)
    assert found is not None and found.leader_epochs.latest_epoch == 0


def test_clean_stop_file_by_file_synchronises_the_epochs(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SYSTEM_DISK, "can_syncfs", lambda: False)
    manager = start(log_dir)
    log = manager.create_log("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    log.assign_leader_epoch(0)
    synced: list[str] = []
    sync_data = os.fdatasync
    monkeypatch.setattr(SYSTEM_DISK, "fdatasync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")) or sync_data(fd))

    manager.close_clean()

    assert str(log_dir / "t-0" / "leader-epoch-checkpoint") in synced


def test_work_in_turns_meets_no_log_that_was_deleted_meanwhile_and_keeps_none(log_dir: Path) -> None:
    """The lists of retention and of the cleaner freed 9,000 deleted logs at once, in 40 ms."""
    manager = start(log_dir)
    for partition in range(3):
        manager.create_log("orders", partition, TOPIC_ID, CONFIG, NOW_MS)
    second = weakref.ref(manager.find_log("orders", 1))

    each = manager.each_log()
    met = [next(each).partition]
    delete_log(manager, "orders", 1)
    gc.collect()
    is_gone = second() is None
    met += [log.partition for log in each]

    assert is_gone and met == [0, 2]
    manager.close_clean()
