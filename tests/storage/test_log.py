"""Log: append, read, watermarks, epochs, truncation, rolling, as a partition sees them."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records import (
    ControlRecordType,
    SimpleRecord,
    build_batch,
    build_control_batch,
    encode_control_record_key,
    encode_end_transaction_value,
)
from storage.disk import SYSTEM_DISK
from storage.errors import StorageError
from storage.file_slice import FileSlice
from storage.leader_epochs import EpochEndOffset, EpochEntry
from storage.log import Log
from storage.page_cache import ColdRead, not_waiting
from storage.validation import AppendOrigin
from tests.storage.conftest import NOW_MS, OpenLog, append, append_idempotent, batch, read_all_offsets, read_bytes, read_offsets

DAY_MS = 86_400_000


def append_marker(log: Log, control_type: ControlRecordType, *, producer_id: int = 7) -> None:
    marker = build_control_batch(control_type, encode_end_transaction_value(0), timestamp=NOW_MS, producer_id=producer_id, producer_epoch=0)
    log.append_as_leader(memoryview(marker), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


def append_transactional(log: Log, sequence: int, *, producer_id: int = 7) -> None:
    append(log, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)


# -- append ------------------------------------------------------------------------------------------------------------


def test_append_assigns_consecutive_offsets(log: Log) -> None:
    first, second = append(log, 3), append(log, 2)

    assert (first.base_offset, first.last_offset, second.base_offset, second.last_offset) == (0, 2, 3, 4)
    assert log.log_end_offset == 5


def test_append_stamps_offset_and_leader_epoch_into_the_batch(log: Log) -> None:
    append(log, 3)

    append(log, leader_epoch=9)

    stored = read_bytes(log, 3)
    assert int.from_bytes(stored[:8]) == 3
    assert int.from_bytes(stored[12:16]) == 9


def test_append_notes_a_new_leader_epoch(log: Log) -> None:
    append(log, 2, leader_epoch=4)
    append(log, 2, leader_epoch=6)

    assert log.leader_epochs.entries() == [EpochEntry(4, 0), EpochEntry(6, 2)]


def test_log_append_time_is_returned_and_stored(open_log: OpenLog) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")

    result = append(log, timestamp=5, now_ms=NOW_MS + 1)

    assert result.log_append_time_ms == NOW_MS + 1
    assert log.find_max_timestamp() == (NOW_MS + 1, 0, 0)


def test_refused_batch_leaves_the_log_as_it_was(log: Log) -> None:
    append(log)
    corrupt = batch()
    corrupt[70] ^= 1

    with pytest.raises(KafkaError) as refusal:
        log.append_as_leader(corrupt, leader_epoch=0, now_ms=NOW_MS)

    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
    assert read_all_offsets(log) == [0]


def test_append_duplicate_sequence_returns_original_offset(log: Log) -> None:
    append_idempotent(log, 0, count=3)
    append_idempotent(log, 3)

    result = append_idempotent(log, 0, count=3)

    assert result.is_duplicate
    assert (result.base_offset, result.last_offset) == (0, 2)
    assert log.log_end_offset == 4


def test_append_sequence_gap_is_refused(log: Log) -> None:
    append_idempotent(log, 0)

    with pytest.raises(KafkaError) as refusal:
        append_idempotent(log, 2)

    assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 1


def test_coordinator_appends_several_batches_at_once(log: Log) -> None:
    together = memoryview(bytearray(bytes(batch(2)) + bytes(batch(3))))

    result = log.append_as_leader(together, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)

    assert (result.base_offset, result.last_offset, result.records_count) == (0, 4, 5)
    assert read_all_offsets(log) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("failure", ["error", "short write"])
def test_failed_write_leaves_nothing_of_the_batch(log: Log, monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    append(log)
    size_before = log.size_bytes
    pwrite = os.pwrite

    def failing_pwrite(fd: int, data: bytes, position: int) -> int:
        if failure == "error":
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(fd, data[:50], position)

    monkeypatch.setattr(SYSTEM_DISK, "pwrite", failing_pwrite)
    with pytest.raises(StorageError):
        append(log)
    monkeypatch.undo()

    assert (log.log_end_offset, log.segments.active.log_path.stat().st_size) == (1, size_before)
    assert append(log).base_offset == 1
    assert read_all_offsets(log) == [0, 1]


def test_follower_keeps_offsets_epochs_and_gaps(log: Log) -> None:
    records = bytes(batch(2, base_offset=10, partition_leader_epoch=3)) + bytes(batch(1, base_offset=20, partition_leader_epoch=4))

    result = log.append_as_follower(memoryview(records + records[:30]), now_ms=NOW_MS)

    assert (result.base_offset, result.last_offset, log.log_end_offset) == (10, 20, 21)
    assert log.leader_epochs.entries() == [EpochEntry(3, 10), EpochEntry(4, 20)]
    assert read_offsets(log, 15) == [20]


def test_follower_refuses_a_batch_before_its_end(log: Log) -> None:
    append(log, 5)

    with pytest.raises(KafkaError):
        log.append_as_follower(batch(2, base_offset=4), now_ms=NOW_MS)

    assert log.log_end_offset == 5


def test_follower_leaves_out_what_is_of_a_higher_epoch_than_its_fetch(log: Log) -> None:
    """KAFKA-18723: the answer was made after another election, for whose epoch this follower has not truncated yet."""
    records = bytes(batch(2, base_offset=0, partition_leader_epoch=3)) + bytes(batch(1, base_offset=2, partition_leader_epoch=4))

    result = log.append_as_follower(memoryview(records), now_ms=NOW_MS, leader_epoch=3)

    assert (result.last_offset, log.log_end_offset, log.leader_epochs.latest_epoch) == (1, 2, 3)


def test_follower_checks_control_batches_before_it_writes_any(log: Log) -> None:
    """A leader's bad bytes must not leave half an append, or take our disk for broken."""
    good = bytes(batch(2, base_offset=0, partition_leader_epoch=1))
    bad = build_batch(
        [SimpleRecord(encode_control_record_key(ControlRecordType.COMMIT), b"")],
        base_offset=2,
        producer_id=7,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )

    with pytest.raises(KafkaError) as refused:
        log.append_as_follower(memoryview(good + bytes(bad)), now_ms=NOW_MS)

    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.segments.active.size_bytes) == (0, 0)


def test_follower_follows_transactions(log: Log) -> None:
    records = bytes(batch(2, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    marker = build_control_batch(
        ControlRecordType.ABORT, encode_end_transaction_value(0), timestamp=NOW_MS, producer_id=7, producer_epoch=0, base_offset=2
    )

    log.append_as_follower(memoryview(records + bytes(marker)), now_ms=NOW_MS)

    assert [(aborted.first_offset, aborted.last_offset) for aborted in log.segments.find_aborted(0, 3)] == [(0, 2)]


# -- read --------------------------------------------------------------------------------------------------------------


def test_read_starts_with_the_batch_that_holds_the_offset(log: Log) -> None:
    append(log, 3)
    append(log, 3)

    assert read_offsets(log, 4) == [3, 4, 5]


def test_read_returns_whole_batches_below_max_bytes(log: Log) -> None:
    sizes = [append(log, size=200).size_bytes for _ in range(5)]

    assert read_offsets(log, 1, max_bytes=sum(sizes[1:3]) + 10) == [1, 2]


def test_read_of_a_first_batch_larger_than_max_bytes(log: Log) -> None:
    append(log, size=5000)
    append(log)

    assert read_offsets(log, 0, max_bytes=100) == []
    assert read_offsets(log, 0, max_bytes=100, minimum_one_batch=True) == [0]


def test_read_ends_before_the_end_offset(log: Log) -> None:
    append(log, 2)
    append(log, 2)

    assert read_offsets(log, 0, end_offset=2) == [0, 1]
    assert read_offsets(log, 0, end_offset=3) == [0, 1]
    assert read_offsets(log, 2, end_offset=2) == []


def test_read_at_the_log_end_is_empty_and_past_it_out_of_range(log: Log) -> None:
    append(log)

    assert read_bytes(log, 1, end_offset=10) == b""
    with pytest.raises(KafkaError) as refusal:
        log.read(2, max_bytes=100, end_offset=10)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_read_before_the_log_start_is_out_of_range(log: Log) -> None:
    append(log, 2)
    append(log, 2)
    log.set_high_watermark(4)
    log.set_log_start_offset(3)

    with pytest.raises(KafkaError) as refusal:
        log.read(2, max_bytes=100, end_offset=4)

    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("max_bytes", [1, 5000, 20_000, 1 << 30])
def test_every_offset_is_found_in_active_and_closed_segments(open_log: OpenLog, max_bytes: int) -> None:
    """Sizes above and below the index interval and the window of recent batches, read by index, by scan and from memory."""
    log = open_log(segment_bytes=300_000)
    for number in range(1500):
        append(log, 1 + number % 3, size=(100, 700, 30)[number % 3])

    for offset in range(0, log.log_end_offset, 7 if max_bytes < 1 << 30 else 131):
        found = read_offsets(log, offset, max_bytes=max_bytes, minimum_one_batch=True)
        assert offset - 2 <= found[0] <= offset <= found[-1]
        assert found == list(range(found[0], found[-1] + 1))


def test_a_read_of_dropped_files_finds_the_same_without_waiting(open_log: OpenLog, directory: Path) -> None:
    log = open_log(segment_bytes=64 * 1024, index_interval_bytes=512)
    for _ in range(2_000):
        append(log)
    log.close()
    log = open_log(segment_bytes=64 * 1024, index_interval_bytes=512, was_clean_stop=True)
    for path in directory.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    for offset in (0, 777, 1_500):
        found: bytes | None = None
        for _ in range(100):
            try:
                with not_waiting:
                    records = log.read(offset, max_bytes=5_000, end_offset=2_000)
            except ColdRead as cold:
                cold.bring_in()
                continue
            assert isinstance(records, FileSlice)
            found = records.read()
            records.release()
            break
        assert found == read_bytes(log, offset, max_bytes=5_000)


def test_slice_of_a_deleted_segment_stays_readable(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=1000, retention_bytes=0, file_delete_delay_ms=0)
    for _ in range(30):
        append(log)
    records = log.read(0, max_bytes=10_000, end_offset=30)
    log.set_high_watermark(30)

    log.delete_old_segments(NOW_MS)

    assert not isinstance(records, bytes)
    assert log.log_start_offset > 0
    assert len(records.read()) == len(records)
    records.release()


# -- watermarks and transactions ---------------------------------------------------------------------------------------


def test_high_watermark_is_clamped_to_the_log(log: Log) -> None:
    append(log, 3)

    assert log.set_high_watermark(10) == 3
    assert log.set_high_watermark(-5) == 0


def test_log_start_offset_may_not_pass_the_high_watermark(log: Log) -> None:
    append(log, 3)
    log.set_high_watermark(2)

    assert log.set_log_start_offset(2)
    assert not log.set_log_start_offset(1)
    with pytest.raises(KafkaError):
        log.set_log_start_offset(3)


def test_open_transaction_holds_the_last_stable_offset_until_its_marker_is_replicated(log: Log) -> None:
    append(log)
    append_transactional(log, 0)
    append(log)
    log.set_high_watermark(3)
    held = log.last_stable_offset

    append_marker(log, ControlRecordType.COMMIT)
    unreplicated = log.last_stable_offset
    log.set_high_watermark(4)

    assert (held, unreplicated, log.last_stable_offset) == (1, 1, 4)


def test_aborted_transaction_is_found_by_the_range_it_overlaps(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=1000)
    append_transactional(log, 0)
    for _ in range(20):
        append(log)
    append_marker(log, ControlRecordType.ABORT)
    append(log)

    found = log.segments.find_aborted(0, log.log_end_offset)

    assert [(aborted.producer_id, aborted.first_offset, aborted.last_offset) for aborted in found] == [(7, 0, 21)]
    assert log.segments.find_aborted(22, 23) == []


def test_committed_transaction_leaves_no_aborted_entry(log: Log) -> None:
    append_transactional(log, 0)
    append_marker(log, ControlRecordType.COMMIT)

    assert log.segments.find_aborted(0, 2) == []


# -- timestamps and epochs ---------------------------------------------------------------------------------------------


def test_offset_by_timestamp_is_the_first_that_is_young_enough(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=2000)
    for second in range(40):
        append(log, 2, timestamp=NOW_MS + second * 1000)

    found = [log.find_offset_by_timestamp(NOW_MS + second * 1000 - 500, end_offset=80) for second in (0, 7, 39)]

    assert [entry and entry.offset for entry in found] == [0, 14, 78]
    assert log.find_offset_by_timestamp(NOW_MS + 40_000, end_offset=80) is None
    assert log.find_offset_by_timestamp(NOW_MS + 39_000, end_offset=78) is None


def test_max_timestamp_is_found_wherever_it_is(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=1000)
    for number in range(20):
        append(log, timestamp=NOW_MS + (5000 if number == 4 else number))

    assert log.find_max_timestamp() == (NOW_MS + 5000, 4, 0)


def test_max_timestamp_of_records_without_one_is_the_first_of_them(log: Log) -> None:
    append(log, 2, timestamp=-1)
    append(log, timestamp=-1)

    assert log.find_max_timestamp() == (-1, 0, 0)


def test_max_timestamp_of_an_empty_log_is_none(log: Log) -> None:
    assert log.find_max_timestamp() is None


def test_end_offset_for_epoch_is_where_the_next_epoch_starts(log: Log) -> None:
    append(log, 3, leader_epoch=1)
    log.assign_leader_epoch(4)
    append(log, 2, leader_epoch=4)

    assert log.end_offset_for_epoch(1) == EpochEndOffset(1, 3)
    assert log.end_offset_for_epoch(3) == EpochEndOffset(1, 3)
    assert log.end_offset_for_epoch(4) == EpochEndOffset(4, 5)
    assert not log.end_offset_for_epoch(5).is_defined


# -- truncation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 57, 150, 299])
def test_truncate_removes_the_batch_that_holds_the_offset_and_all_after_it(open_log: OpenLog, directory: Path, offset: int) -> None:
    log = open_log(segment_bytes=5000)
    for _ in range(300):
        append(log)
    log.set_high_watermark(300)

    assert log.truncate_to(offset)

    assert (log.log_end_offset, log.high_watermark) == (offset, offset)
    assert read_all_offsets(log) == list(range(offset))
    assert append(log).base_offset == offset
    assert read_all_offsets(open_log()) == list(range(offset + 1))


def test_truncate_inside_a_batch_removes_it_whole(log: Log) -> None:
    """Kafka sets the log end offset to the target all the same; here a follower fetches the whole batch again."""
    append(log, 2)
    append(log, 5)

    log.truncate_to(4)

    assert log.log_end_offset == 2
    assert read_all_offsets(log) == [0, 1]


def test_truncate_forgets_epochs_and_producers_of_what_is_gone(log: Log) -> None:
    append_idempotent(log, 0)
    append_idempotent(log, 1)
    append(log, leader_epoch=5)

    log.truncate_to(1)

    assert log.leader_epochs.entries() == [EpochEntry(0, 0)]
    assert append_idempotent(log, 1).base_offset == 1


def test_truncate_past_the_end_changes_nothing_but_epochs(log: Log) -> None:
    append(log, 2)
    log.assign_leader_epoch(3)

    assert not log.truncate_to(2)

    assert log.log_end_offset == 2
    assert log.leader_epochs.entries() == [EpochEntry(0, 0)]


def test_truncate_fully_starts_over_at_the_offset(open_log: OpenLog, directory: Path) -> None:
    log = open_log(segment_bytes=1000)
    for _ in range(20):
        append(log)

    log.truncate_fully_and_start_at(500)

    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (500, 500, 500)
    assert append(log).base_offset == 500
    assert [path.name for path in directory.glob("*.log")] == ["00000000000000000500.log"]
    assert read_all_offsets(open_log()) == [500]


def test_truncate_fully_at_the_offset_it_starts_at(log: Log) -> None:
    append(log, 3)

    log.truncate_fully_and_start_at(0)

    assert append(log).base_offset == 0


# -- rolling -----------------------------------------------------------------------------------------------------------


def segment_offsets(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_roll_when_the_next_batch_would_not_fit(open_log: OpenLog) -> None:
    size = len(batch(size=300))
    log = open_log(segment_bytes=3 * size)

    for _ in range(4):
        append(log, size=300)

    assert segment_offsets(log) == [0, 3]


def test_roll_by_age_of_the_first_batch_in_record_time(open_log: OpenLog) -> None:
    log = open_log(segment_ms=DAY_MS)
    append(log, timestamp=NOW_MS - 10 * DAY_MS)

    append(log, timestamp=NOW_MS - 9 * DAY_MS)
    append(log, timestamp=NOW_MS - 9 * DAY_MS + 1)

    assert segment_offsets(log) == [0, 2]


def test_roll_by_age_is_brought_forward_by_the_jitter(open_log: OpenLog) -> None:
    log = open_log(segment_ms=DAY_MS, segment_jitter_ms=5000, random_below=lambda limit: limit - 1)
    append(log, timestamp=NOW_MS - 2 * DAY_MS)

    append(log, timestamp=NOW_MS - DAY_MS - 4999)
    append(log, timestamp=NOW_MS - DAY_MS - 4998)

    assert segment_offsets(log) == [0, 2]


def test_roll_when_an_index_is_full(open_log: OpenLog) -> None:
    log = open_log(segment_index_bytes=36, index_interval_bytes=0)

    for _ in range(6):
        append(log)

    assert segment_offsets(log) == [0, 5]
    assert read_all_offsets(log) == [0, 1, 2, 3, 4, 5]


def test_roll_when_the_offset_does_not_fit_the_index(log: Log) -> None:
    log.append_as_follower(batch(base_offset=5), now_ms=NOW_MS)

    log.append_as_follower(batch(base_offset=2**31), now_ms=NOW_MS)

    assert segment_offsets(log) == [0, 2**31]
    assert read_offsets(log, 6) == [2**31]


@pytest.mark.parametrize(
    ("policy", "compaction_lag_ms", "limit_ms"),
    [
        (("compact",), 5_000, 5_000),
        (("compact", "delete"), 5_000, 5_000),
        (("compact",), 2 * DAY_MS, DAY_MS),
        (("delete",), 5_000, DAY_MS),
    ],
)
def test_max_compaction_lag_bounds_the_age_of_a_compacted_log_s_active_segment(
    open_log: OpenLog, policy: tuple[str, ...], compaction_lag_ms: int, limit_ms: int
) -> None:
    """What shall be compacted by then must not lie in the active segment, which is left alone (LogConfig.maxSegmentMs)."""
    log = open_log(segment_ms=DAY_MS, cleanup_policy=policy, max_compaction_lag_ms=compaction_lag_ms)
    append(log, timestamp=NOW_MS - 2 * DAY_MS)

    append(log, timestamp=NOW_MS - 2 * DAY_MS + limit_ms)
    append(log, timestamp=NOW_MS - 2 * DAY_MS + limit_ms + 1)

    assert segment_offsets(log) == [0, 2]


def test_roll_takes_a_producer_snapshot_at_the_new_base_offset(log: Log, directory: Path) -> None:
    append_idempotent(log, 0)

    log.roll(NOW_MS)

    assert (directory / "00000000000000000001.snapshot").exists()


def test_update_config_takes_effect_with_the_next_append(open_log: OpenLog) -> None:
    log = open_log()
    append(log, size=600)

    log.update_config(replace(log.config, segment_bytes=1000))
    append(log, size=600)

    assert segment_offsets(log) == [0, 1]


def test_what_is_not_on_this_disk_is_out_of_range_though_the_log_starts_before_it(log: Log) -> None:
    append(log, 5)

    log.truncate_fully_and_start_at(100, log_start_offset=40)

    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (40, 100, 100)
    with pytest.raises(KafkaError, match=r"offset 50 is not in \[100, 100\]"):
        read_bytes(log, 50)
    append(log)
    assert read_offsets(log, 100) == [100]


def test_local_start_follows_the_log_start_and_retention(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=1000)
    for _ in range(30):
        append(log)
    log.set_high_watermark(log.log_end_offset)
    log.set_log_start_offset(12)
    assert log.local_log_start_offset == 12

    log.update_config(replace(log.config, retention_bytes=0))
    log.delete_old_segments(NOW_MS)

    assert log.local_log_start_offset == log.log_start_offset == log.segments.first.base_offset > 12
