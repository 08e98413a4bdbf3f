"""Log.append_markers: the ends of transactions, each with a verdict of its own."""

from __future__ import annotations

import pytest

from protocol.compression import Compression
from protocol.errors import ErrorCode
from protocol.records import ControlRecordType, crc_is_valid, iterate_headers, read_end_transaction_marker
from storage.log import Log
from storage.markers import MarkerResult, TransactionMarker
from storage.producer_checks import PRODUCER_EPOCH_MAX
from storage.tail_cache import TailCache
from tests.storage.conftest import NOW_MS, OpenLog, append, read_bytes

PID = 7


def append_transactional(log: Log, producer_id: int, *, epoch: int = 0) -> None:
    append(log, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)


def end(log: Log, *markers: TransactionMarker, leader_epoch: int = 0) -> list[MarkerResult]:
    return log.append_markers(markers, leader_epoch=leader_epoch, now_ms=NOW_MS)


def codes(results: list[MarkerResult]) -> list[ErrorCode]:
    return [result.error_code for result in results]


def markers_of(log: Log, start_offset: int = 0) -> list[tuple[int, int, int, ControlRecordType, int]]:
    """(offset, producer, its epoch, type, coordinator epoch) of the markers that one read returns."""
    data = read_bytes(log, start_offset)
    found = []
    for position, header in iterate_headers(data):
        if header.is_control:
            assert header.is_transactional
            assert header.records_count == 1
            marker = read_end_transaction_marker(data, position, header)
            assert marker is not None
            found.append((header.base_offset, header.producer_id, header.producer_epoch, marker.control_type, marker.coordinator_epoch))
    return found


def test_each_marker_is_a_batch_of_its_own(log: Log) -> None:
    for producer_id in (1, 2):
        append_transactional(log, producer_id)
    log.set_high_watermark(2)

    results = end(log, TransactionMarker(2, 0, 5, is_commit=True), TransactionMarker(1, 3, 6, is_commit=False), leader_epoch=4)

    assert results == [MarkerResult(ErrorCode.NONE, 2), MarkerResult(ErrorCode.NONE, 3)]
    assert markers_of(log) == [(2, 2, 0, ControlRecordType.COMMIT, 5), (3, 1, 3, ControlRecordType.ABORT, 6)]
    assert [header.partition_leader_epoch for _, header in iterate_headers(read_bytes(log, 2))] == [4, 4]
    assert log.leader_epochs.latest_epoch == 4
    assert [(each.producer_id, each.first_offset, each.last_offset) for each in log.segments.find_aborted(0, 4)] == [(1, 0, 3)]
    log.set_high_watermark(4)
    assert log.last_stable_offset == 4


def test_a_refused_marker_leaves_the_others_as_they_are(log: Log) -> None:
    for producer_id in (1, 2, 3):
        append_transactional(log, producer_id, epoch=1)

    results = end(log, *(TransactionMarker(producer_id, epoch, 0, is_commit=True) for producer_id, epoch in ((1, 1), (2, 0), (3, 1))))

    assert codes(results) == [ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE]
    assert [result.offset for result in results] == [3, -1, 4]
    assert results[1].message is not None
    assert log.producers.first_unstable_offset == 0
    log.set_high_watermark(5)
    assert log.last_stable_offset == 1, "the transaction of producer 2"


OK, OLD = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("version", "is_open", "epoch", "marker_epoch", "expected"),
    [
        (0, True, 5, 4, OLD),
        (0, True, 5, 5, OK),
        (0, True, 5, 6, OK),
        (0, False, 5, 4, OLD),
        (0, False, 5, 5, OK),
        (1, True, 5, 4, OLD),
        (1, True, 5, 5, OK),
        (1, False, 5, 5, OK),
        (2, True, 5, 4, OLD),
        (2, True, 5, 5, OLD),
        (2, True, 5, 6, OK),
        (2, False, 5, 4, OLD),
        (2, False, 5, 5, OK),
        (2, False, 5, 6, OK),
        (2, True, PRODUCER_EPOCH_MAX, PRODUCER_EPOCH_MAX, OK),
        (2, False, PRODUCER_EPOCH_MAX, PRODUCER_EPOCH_MAX, OK),
        (2, True, PRODUCER_EPOCH_MAX, PRODUCER_EPOCH_MAX - 1, OLD),
    ],
)
def test_the_epoch_of_a_marker(log: Log, version: int, is_open: bool, epoch: int, marker_epoch: int, expected: ErrorCode) -> None:
    """KAFKA-19999: at version 2 the epoch that the partition knows is a repeated marker, or a late one."""
    append_transactional(log, PID, epoch=epoch)
    if not is_open:
        assert codes(end(log, TransactionMarker(PID, epoch, 0, is_commit=True))) == [OK]
    end_offset = log.log_end_offset

    results = end(log, TransactionMarker(PID, marker_epoch, 0, True, version))

    assert codes(results) == [expected]
    assert log.log_end_offset == end_offset + (expected is OK)


def test_a_marker_of_an_older_coordinator_is_fenced(log: Log) -> None:
    append_transactional(log, PID)
    end(log, TransactionMarker(PID, 1, 5, is_commit=True))

    results = end(log, TransactionMarker(PID, 2, 4, True, 2), TransactionMarker(8, 2, 4, True, 2), TransactionMarker(PID, 2, 5, True, 2))

    assert codes(results) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED, OK, OK]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_marker_of_an_unknown_producer_is_written(log: Log, version: int) -> None:
    """Its records are gone, or it never wrote here: the coordinator would ask for ever."""
    assert codes(end(log, TransactionMarker(PID, 0, 3, False, version))) == [OK]

    assert markers_of(log) == [(0, PID, 0, ControlRecordType.ABORT, 3)]
    assert log.segments.find_aborted(0, 1) == []


def test_markers_of_one_producer_are_judged_one_after_the_other(log: Log) -> None:
    append_transactional(log, PID, epoch=5)

    results = end(
        log,
        TransactionMarker(PID, 6, 2, True, 2),
        TransactionMarker(PID, 6, 2, True, 2),
        TransactionMarker(PID, 7, 1, True, 2),
        TransactionMarker(PID, 5, 2, True, 2),
    )

    assert codes(results) == [OK, OK, ErrorCode.TRANSACTION_COORDINATOR_FENCED, OLD]
    assert log.log_end_offset == 3


def test_followers_and_recovery_judge_by_the_old_rule(open_log: OpenLog) -> None:
    """The level is not in the log. A late marker that an older leader has accepted does not stop them."""
    log = open_log()
    append_transactional(log, PID, epoch=5)
    end(log, TransactionMarker(PID, 5, 0, False, 1))
    data = read_bytes(log, 0)

    reopened = open_log()
    reopened.set_high_watermark(2)
    assert (reopened.log_end_offset, reopened.last_stable_offset) == (2, 2)
    reopened.truncate_to(0)
    reopened.append_as_follower(memoryview(data), now_ms=NOW_MS)
    reopened.set_high_watermark(2)
    assert reopened.last_stable_offset == 2


def test_what_markers_did_survives_a_kill(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=500)
    for producer_id in range(1, 21):
        append_transactional(log, producer_id)
    markers = [TransactionMarker(producer_id, 1, 9, producer_id % 2 == 0, 2) for producer_id in range(1, 20)]

    results = end(log, *markers)

    assert codes(results) == [OK] * 19
    assert [result.offset for result in results] == list(range(20, 39))
    aborted = log.segments.find_aborted(0, 100)
    assert [each.producer_id for each in aborted] == list(range(1, 20, 2))
    assert all(segment.size_bytes <= 500 for segment in log.segments)
    reopened = open_log(segment_bytes=500)
    reopened.set_high_watermark(39)
    assert reopened.segments.find_aborted(0, 100) == aborted
    assert reopened.last_stable_offset == 19
    assert reopened.producers.producers[5].coordinator_epoch == 9
    assert codes(end(reopened, TransactionMarker(5, 2, 8, True, 2))) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]


def test_markers_get_the_topics_time(open_log: OpenLog) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")

    end(log, TransactionMarker(1, 0, 0, is_commit=True))

    assert [header.is_log_append_time for _, header in iterate_headers(read_bytes(log, 0))] == [True]
    assert log.find_max_timestamp() == (NOW_MS, 0, 0)


@pytest.mark.parametrize("compression_type", ["gzip", "uncompressed", "producer"])
def test_markers_are_never_compressed(open_log: OpenLog, compression_type: str) -> None:
    log = open_log(compression_type=compression_type)

    end(log, TransactionMarker(1, 0, 0, is_commit=True))

    data = read_bytes(log, 0)
    assert [(header.compression, crc_is_valid(data, position, header.size_bytes)) for position, header in iterate_headers(data)] == [
        (Compression.NONE, True)
    ]


def test_the_tail_holds_the_markers_together(log: Log) -> None:
    """A follower that has what was before them gets all of them."""
    log.tail = TailCache()

    end(log, TransactionMarker(1, 0, 0, is_commit=True), TransactionMarker(2, 0, 0, is_commit=True))

    found = log.read(0, max_bytes=1000, end_offset=2)
    assert isinstance(found, bytes)
    assert [header.producer_id for _, header in iterate_headers(found)] == [1, 2]
