"""Retention by time, size and log start offset, and files that wait for their deletion delay."""

from __future__ import annotations

from pathlib import Path

from storage.log import Log
from storage.retention import delete_files
from tests.storage.conftest import NOW_MS, OpenLog, append, append_idempotent, batch, read_all_offsets

DAY_MS = 86_400_000


def fill(log: Log, segments: int, *, timestamp: int = NOW_MS) -> None:
    """`segments` segments of two records each, the last one active, all below the high watermark."""
    for number in range(segments):
        if number:
            log.roll(NOW_MS)
        append(log, timestamp=timestamp + number * 1000)
        append(log, timestamp=timestamp + number * 1000)
    log.set_high_watermark(log.log_end_offset)


def base_offsets(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_segments_older_than_retention_ms_go(open_log: OpenLog) -> None:
    log = open_log(retention_ms=DAY_MS)
    fill(log, 4, timestamp=NOW_MS - DAY_MS)

    assert log.delete_old_segments(NOW_MS + 1001) == 2

    assert (log.log_start_offset, base_offsets(log)) == (4, [4, 6])
    assert read_all_offsets(log) == [4, 5, 6, 7]


def test_an_old_active_segment_is_rolled_and_goes(open_log: OpenLog) -> None:
    log = open_log(retention_ms=DAY_MS)
    fill(log, 2)

    assert log.delete_old_segments(NOW_MS + 2 * DAY_MS) == 2

    assert (log.log_start_offset, log.log_end_offset, base_offsets(log)) == (4, 4, [4])
    assert append(log).base_offset == 4


def test_an_empty_log_is_left_alone(open_log: OpenLog) -> None:
    assert open_log(retention_ms=0).delete_old_segments(NOW_MS + DAY_MS) == 0


def test_records_without_timestamps_age_by_the_files_modification_time(open_log: OpenLog) -> None:
    log = open_log(retention_ms=DAY_MS)
    log.append_as_follower(batch(timestamp=-1), now_ms=NOW_MS)
    log.set_high_watermark(1)

    assert log.delete_old_segments(NOW_MS) == 0


def test_oldest_segments_go_while_retention_bytes_remain_without_them(open_log: OpenLog) -> None:
    size = 2 * len(batch())
    log = open_log(retention_bytes=2 * size)
    fill(log, 5)

    assert log.delete_old_segments(NOW_MS) == 3

    assert base_offsets(log) == [6, 8]


def test_segments_at_or_past_the_high_watermark_stay(open_log: OpenLog) -> None:
    log = open_log(retention_bytes=0)
    fill(log, 4)
    log.set_high_watermark(5)

    assert log.delete_old_segments(NOW_MS) == 2

    assert base_offsets(log) == [4, 6]


def test_compacted_topic_keeps_its_segments_but_for_those_below_the_start_offset(open_log: OpenLog) -> None:
    log = open_log(cleanup_policy=("compact",), retention_ms=1, retention_bytes=1)
    fill(log, 4)
    log.set_log_start_offset(5)

    assert log.delete_old_segments(NOW_MS + DAY_MS) == 2

    assert (log.log_start_offset, base_offsets(log)) == (5, [4, 6])


def test_infinite_retention_keeps_everything(open_log: OpenLog) -> None:
    log = open_log(retention_ms=-1, retention_bytes=-1)
    fill(log, 3)

    assert log.delete_old_segments(NOW_MS + 10_000 * DAY_MS) == 0


def test_deleted_files_keep_their_content_until_the_delay_is_over(open_log: OpenLog, directory: Path) -> None:
    log = open_log(retention_bytes=0, file_delete_delay_ms=60_000)
    append_idempotent(log, 0)
    log.roll(NOW_MS)
    log.set_high_watermark(1)
    log.delete_old_segments(NOW_MS)
    renamed = sorted(path.name for path in directory.glob("*.deleted"))

    early = log.deletions.take_due(NOW_MS + 59_999)
    due = log.deletions.take_due(NOW_MS + 60_000)
    for deletion in due:
        delete_files(deletion)

    assert renamed == [f"00000000000000000000.{suffix}.deleted" for suffix in ("index", "log", "timeindex")]
    assert (early, len(due)) == ([], 1)
    assert list(directory.glob("*.deleted")) == []


def test_producer_snapshots_go_with_their_segments(open_log: OpenLog, directory: Path) -> None:
    log = open_log(retention_bytes=0)
    for sequence in range(3):
        append_idempotent(log, sequence)
        log.roll(NOW_MS)
    log.set_high_watermark(3)

    log.delete_old_segments(NOW_MS)

    assert sorted(path.name for path in directory.glob("*.snapshot")) == ["00000000000000000003.snapshot"]


def test_log_start_offset_after_retention_survives_a_kill(open_log: OpenLog) -> None:
    log = open_log(retention_bytes=0)
    fill(log, 3)
    log.delete_old_segments(NOW_MS)

    reopened = open_log()

    assert (reopened.log_start_offset, reopened.log_end_offset) == (log.log_start_offset, 6)
