"""FlushWork and the recovery point: what counts as durable, and when a flush is due."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage.disk import SYSTEM_DISK
from storage.errors import StorageError
from storage.file_slice import SegmentFile
from storage.leader_epochs import EpochEntry
from storage.segment import LogSegment
from tests.storage.conftest import NOW_MS, OpenLog, append, append_idempotent


def test_nothing_is_durable_before_a_flush(open_log: OpenLog) -> None:
    log = open_log()
    append(log, 3)

    assert (log.durable_end_offset, log.has_unflushed) == (0, True)


def test_flushed_work_makes_durable_what_was_there_when_it_was_taken(open_log: OpenLog) -> None:
    log = open_log()
    append(log, 3)
    work = log.take_flush()
    assert work is not None
    append(log)

    work.run()
    log.flushed(work)

    assert log.durable_end_offset == 3
    assert log.has_unflushed


def test_take_flush_of_a_durable_log_is_none(open_log: OpenLog) -> None:
    log = open_log()
    append(log)
    log.flush()

    assert log.take_flush() is None


def test_work_older_than_a_truncation_moves_nothing(open_log: OpenLog) -> None:
    """Else offsets that were written again after the truncation would count as synchronised."""
    log = open_log()
    append(log, 3)
    append(log, 3)
    work = log.take_flush()
    assert work is not None
    log.truncate_to(3)
    append(log, 5)

    work.run()
    log.flushed(work)

    assert log.durable_end_offset == 0


def test_work_that_is_given_back_is_all_done_by_the_next(open_log: OpenLog) -> None:
    """The directory too: without its fsync a power cut takes the name of a new file."""
    log = open_log()
    append(log, 3)
    first = log.take_flush()
    assert first is not None and first.directory is not None

    log.give_back(first)
    again = log.take_flush()

    assert again is not None
    assert (again.directory, again.end_offset, again.paths) == (first.directory, first.end_offset, first.paths)
    log.flushed(again)
    assert log.segments.active.file._references == 1


def test_a_flush_that_cannot_open_one_file_keeps_none_of_the_others(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(segment_bytes=200)
    for _ in range(3):
        append(log)
    *closed, active = log.segments
    assert closed
    share = LogSegment.share_file

    def refuse_the_last(segment: LogSegment) -> SegmentFile:
        if segment is active:
            raise OSError(errno.EMFILE, "Too many open files")
        shared.append(share(segment))
        return shared[-1]

    shared: list[SegmentFile] = []
    before = [segment.file._references for segment in closed]
    monkeypatch.setattr(LogSegment, "share_file", refuse_the_last)
    with pytest.raises(StorageError, match="Too many open files"):
        log.take_flush()

    assert len(shared) == len(closed)
    assert [segment.file._references for segment in closed] == before


def test_truncation_lowers_the_recovery_point(open_log: OpenLog) -> None:
    log = open_log()
    append(log, 3)
    append(log, 3)
    log.flush()

    log.truncate_to(3)

    assert log.recovery_point == 3


def test_flush_after_a_roll_covers_the_closed_segment_with_its_indexes_and_snapshot(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    append_idempotent(log, 0)
    log.roll(NOW_MS)
    append(log)

    work = log.take_flush()

    assert work is not None
    assert len(work.files) == 2
    first = "00000000000000000000"
    assert {path.name for path in work.paths} >= {f"{first}.index", f"{first}.timeindex", "00000000000000000001.snapshot"}
    assert work.directory == directory
    work.release()


def test_segment_that_is_rolled_while_a_flush_runs_is_in_the_next_one(open_log: OpenLog) -> None:
    """It took a batch after the flush had begun: that batch would count as durable, and a power cut would take it."""
    log = open_log()
    append(log)
    work = log.take_flush()
    assert work is not None
    append(log)
    log.roll(NOW_MS)
    append(log)
    work.run()
    log.flushed(work)

    following = log.take_flush()

    assert following is not None
    assert len(following.files) == 2  # the closed segment and the active one
    following.release()


def test_flush_is_due_after_a_roll(open_log: OpenLog) -> None:
    log = open_log()
    append(log)
    before = log.flush_is_due(NOW_MS)
    log.roll(NOW_MS)

    assert (before, log.flush_is_due(NOW_MS)) == (False, True)
    log.flush()
    assert not log.flush_is_due(NOW_MS)


def test_flush_is_due_by_messages(open_log: OpenLog) -> None:
    log = open_log(flush_messages=4)
    append(log, 3)
    before = log.flush_is_due(NOW_MS)
    append(log)

    assert (before, log.flush_is_due(NOW_MS)) == (False, True)


def test_flush_is_due_by_time_since_the_oldest_unflushed_append(open_log: OpenLog) -> None:
    log = open_log(flush_ms=1000)
    append(log, now_ms=NOW_MS)
    append(log, now_ms=NOW_MS + 900)

    assert not log.flush_is_due(NOW_MS + 999)
    assert log.flush_is_due(NOW_MS + 1000)
    log.flush()
    assert not log.flush_is_due(NOW_MS + 5000)


def test_failed_fsync_is_a_storage_error_and_moves_nothing(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log()
    append(log)

    def failing_fdatasync(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(SYSTEM_DISK, "fdatasync", failing_fdatasync)
    with pytest.raises(StorageError):
        log.flush()

    assert log.durable_end_offset == 0


def test_work_keeps_the_descriptors_of_a_closed_log(open_log: OpenLog) -> None:
    log = open_log()
    append(log)
    work = log.take_flush()
    assert work is not None

    log.abandon()

    work.run()
    work.release()
    assert all(fd == -1 for fd in work.descriptors)


def test_a_new_leader_epoch_asks_for_a_flush_and_waits_for_none(open_log: OpenLog) -> None:
    """A broker may begin to lead a thousand partitions at once."""
    log = open_log()
    append(log)
    log.flush()
    assert not log.flush_is_due(NOW_MS)

    log.assign_leader_epoch(7)

    assert log.flush_is_due(NOW_MS)
    work = log.take_flush()
    assert work is not None
    assert log.leader_epochs.path in work.paths
    work.run()
    log.flushed(work)
    assert log.leader_epochs.path.read_bytes() == b"0\n2\n0 0\n7 1\n"
    assert not log.has_unflushed


def test_each_of_two_flushes_at_once_has_the_epochs_durable_before_it_counts(open_log: OpenLog) -> None:
    """The recovery point may move by the second one, when the first has written nothing yet: recovery would not read that epoch again."""
    log = open_log()
    append(log)
    log.flush()
    append(log, leader_epoch=7)
    first = log.take_flush()
    append(log, leader_epoch=7)
    second = log.take_flush()
    assert first is not None and second is not None

    second.run()
    log.flushed(second)

    assert open_log(recovery_point=log.recovery_point).leader_epochs.entries() == [EpochEntry(0, 0), EpochEntry(7, 1)]
    first.release()


def test_epochs_that_a_truncation_has_removed_leave_the_file_with_the_next_flush(open_log: OpenLog) -> None:
    log = open_log()
    append(log)
    append(log, leader_epoch=7)
    log.flush()

    log.truncate_to(1)

    assert not log.flush_is_due(NOW_MS)
    log.flush()
    assert log.leader_epochs.path.read_bytes() == b"0\n1\n0 0\n"


def test_an_epoch_that_begins_while_a_flush_runs_is_left_to_the_next(open_log: OpenLog) -> None:
    log = open_log()
    append(log)
    log.assign_leader_epoch(7)
    work = log.take_flush()
    assert work is not None
    log.assign_leader_epoch(8)

    work.run()
    log.flushed(work)

    assert log.flush_is_due(NOW_MS)
    log.flush()
    assert not log.has_unflushed


def test_the_first_epoch_of_a_log_can_wait_for_the_next_flush(open_log: OpenLog) -> None:
    """Else ten thousand new partitions would be flushed for what the metadata log knows too."""
    log = open_log()

    log.assign_leader_epoch(0)

    assert not log.flush_is_due(NOW_MS)
    work = log.take_flush()
    assert work is not None
    assert log.leader_epochs.path in work.paths
