"""What compaction leaves of a log, read as a consumer reads it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from protocol.compression import Compression
from protocol.errors import DecodeError
from protocol.record_spans import iterate_spans
from protocol.records import (
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    BatchHeader,
    ControlRecordType,
    SimpleRecord,
    assemble_batch,
    build_batch,
    build_control_batch,
    encode_end_transaction_value,
    read_header,
)
from storage import log_opener
from storage.compaction.cleaner import compact
from storage.log import Log
from storage.transaction_index import AbortedTransaction
from storage.validation import AppendOrigin
from tests.storage.compaction.logs import headers_of, last_values, pairs_of, plan_of, put, records_of, run, swap
from tests.storage.conftest import NOW_MS, TOPIC_ID, OpenLog
from tests.support.turns import finished

DAY_MS = 86_400_000
SEGMENT_BYTES = 1000


@pytest.fixture
def log(open_log: OpenLog) -> Log:
    return open_log(cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES, index_interval_bytes=100)


def end_transaction(log: Log, control_type: ControlRecordType, *, producer_id: int = 7, producer_epoch: int = 0) -> None:
    marker = build_control_batch(
        control_type, encode_end_transaction_value(1), timestamp=NOW_MS, producer_id=producer_id, producer_epoch=producer_epoch
    )
    log.append_as_leader(memoryview(marker), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.set_high_watermark(log.log_end_offset)


def test_the_last_record_of_each_key_stays_at_its_offset(log: Log) -> None:
    put(log, ("a", "1"), ("b", "1"), ("a", "2"))
    put(log, ("c", "1"))
    put(log, ("b", "2"))
    log.roll(NOW_MS)
    put(log, ("c", "2"))

    run(log)

    assert pairs_of(log) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "c", "2")]


def test_the_active_segment_and_what_is_not_stable_yet_stay(log: Log) -> None:
    put(log, ("a", "1"))
    log.roll(NOW_MS)
    put(log, ("a", "2"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.roll(NOW_MS)
    put(log, ("a", "3"))
    log.roll(NOW_MS)
    put(log, ("a", "4"))

    run(log)

    assert [value for _, _, value in pairs_of(log)] == ["1", "2", "3", "4"]
    assert log.clean_end_offset == 1


def test_a_tombstone_hides_at_once_and_goes_after_its_horizon(log: Log) -> None:
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None))
    log.roll(NOW_MS)

    run(log)
    assert pairs_of(log) == [(1, "b", "1"), (2, "a", None)]
    (horizon,) = [header for header in headers_of(log) if header.attributes & DELETE_HORIZON_FLAG]
    assert horizon.base_timestamp == NOW_MS + DAY_MS
    assert [record.timestamp for record in records_of(log)] == [NOW_MS, NOW_MS]

    put(log, ("c", "1"))
    log.roll(NOW_MS)
    run(log, now_ms=NOW_MS + DAY_MS - 1)
    assert (2, "a", None) in pairs_of(log)

    put(log, ("c", "2"))
    log.roll(NOW_MS)
    run(log, now_ms=NOW_MS + DAY_MS)
    assert pairs_of(log) == [(1, "b", "1"), (4, "c", "2")]


def test_an_active_producer_keeps_its_last_batch_without_records(log: Log) -> None:
    put(log, ("a", "1"), producer_id=7, producer_epoch=3, base_sequence=0)
    put(log, ("a", "2"), ("a", "3"), producer_id=7, producer_epoch=3, base_sequence=1)
    put(log, ("a", "4"))
    log.roll(NOW_MS)

    run(log)

    assert pairs_of(log) == [(3, "a", "4")]
    emptied = headers_of(log)[0]
    assert (emptied.base_offset, emptied.last_offset, emptied.records_count, emptied.base_timestamp) == (1, 2, 0, -1)
    assert (emptied.producer_id, emptied.producer_epoch, emptied.last_sequence) == (7, 3, 2)


def test_the_last_batch_of_the_range_stays_without_records(log: Log) -> None:
    put(log, ("a", "1"))
    put(log, ("b", "1"))
    put(log, ("b", None), now_ms=NOW_MS)
    log.roll(NOW_MS)
    run(log)
    put(log, ("b", "1"))
    log.roll(NOW_MS)

    run(log)
    put(log, ("b", "2"))
    log.roll(NOW_MS)
    plan = plan_of(log)
    limited = plan._replace(end_offset=4, segments=plan.segments[:1], first_dirty_offset=0)

    assert finished(compact(plan)).clean_end_offset == 5
    assert finished(compact(limited)).clean_end_offset == 4


def test_records_of_aborted_transactions_go_and_their_marker_after_them(log: Log) -> None:
    put(log, ("a", "1"))
    put(log, ("a", "2"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    end_transaction(log, ControlRecordType.ABORT)
    put(log, ("b", "1"), producer_id=7, producer_epoch=0, base_sequence=1, is_transactional=True)
    end_transaction(log, ControlRecordType.COMMIT)
    log.roll(NOW_MS)

    run(log)

    assert pairs_of(log) == [(0, "a", "1"), (3, "b", "1")]
    assert [header.base_offset for header in headers_of(log) if header.is_control] == [2, 4]
    assert len(log.segments.find_aborted(0, log.log_end_offset)) == 1

    for day in (0, 1):  # the first finds the marker without its batches and sets its horizon
        put(log, ("c", str(day)))
        log.roll(NOW_MS)
        run(log, now_ms=NOW_MS + day * DAY_MS)
    assert [header.base_offset for header in headers_of(log) if header.is_control] == [4]
    assert log.segments.find_aborted(0, log.log_end_offset) == []


def test_the_index_of_an_aborted_transaction_may_lie_in_a_later_segment(log: Log) -> None:
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", "2"), producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.roll(NOW_MS)
    end_transaction(log, ControlRecordType.ABORT)

    run(log)

    assert pairs_of(log) == [(0, "a", "1"), (1, "b", "1")]


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_are_compressed_again_with_their_codec(log: Log, codec: Compression) -> None:
    put(log, *((f"k{number % 3}", "v" * 50) for number in range(10)), compression=codec)
    put(log, ("k0", "last"), compression=codec)
    log.roll(NOW_MS)

    run(log)

    assert pairs_of(log) == [(7, "k1", "v" * 50), (8, "k2", "v" * 50), (10, "k0", "last")]
    assert {header.compression for header in headers_of(log)} == {codec}


def test_append_times_and_headers_stay(open_log: OpenLog) -> None:
    log = open_log(cleanup_policy=("compact",), message_timestamp_type="LogAppendTime")
    headers = (("h", b"1"), ("i", None))
    records = [SimpleRecord(b"a", b"1", headers, 5), SimpleRecord(b"b", None, headers, 6), SimpleRecord(b"a", b"2", headers, 7)]
    log.append_as_leader(memoryview(build_batch(records)), leader_epoch=0, now_ms=NOW_MS)
    log.set_high_watermark(3)
    log.roll(NOW_MS)

    run(log)

    found = records_of(log)
    assert [(record.offset, record.key, record.timestamp, record.headers) for record in found] == [
        (1, b"b", NOW_MS, headers),
        (2, b"a", NOW_MS, headers),
    ]


def test_a_map_that_is_full_leaves_the_rest_for_the_next_round(log: Log) -> None:
    for round_number in range(2):
        for number in range(100):
            put(log, (f"key{number}", str(round_number)))
    log.roll(NOW_MS)
    before = last_values(records_of(log))

    rounds = 0
    while (log.clean_end_offset or 0) < log.log_end_offset:
        run(log, limit_bytes=1000)
        assert last_values(records_of(log)) == before
        rounds += 1

    assert rounds > 3
    assert len(records_of(log)) <= 101


def test_segments_that_became_small_are_joined(log: Log) -> None:
    for number in range(100):
        put(log, (f"key{number % 5}", "v" * 50))
    assert len(log.segments) > 10

    run(log)
    assert len(log.segments) > 5
    put(log, ("key0", "v"))
    log.roll(NOW_MS)
    run(log)

    assert len(log.segments) == 3
    assert log.log_end_offset == 101


def test_a_follower_takes_what_was_compacted(log: Log, tmp_path: Path) -> None:
    put(log, ("a", "1"), ("b", None), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, ("a", "2"), ("a", "3"), producer_id=7, producer_epoch=0, base_sequence=2)
    put(log, ("a", "4"), ("c", None))
    log.roll(NOW_MS)
    run(log)
    (tmp_path / "other").mkdir()
    other = log_opener.open_log(tmp_path / "other", "t", 0, TOPIC_ID, log.config, now_ms=NOW_MS)

    for segment in log.segments:
        other.append_as_follower(memoryview(bytearray(segment.log_path.read_bytes())), now_ms=NOW_MS, leader_epoch=0)

    other.set_high_watermark(other.log_end_offset)
    assert headers_of(other) == headers_of(log)
    assert records_of(other) == records_of(log)
    assert other.log_end_offset == log.log_end_offset
    found = [each.find_offset_by_timestamp(NOW_MS, end_offset=each.log_end_offset) for each in (log, other)]
    assert found[0] == found[1] and found[0] is not None and found[0].offset == 1


def test_a_damaged_batch_is_not_given_a_new_checksum(log: Log) -> None:
    put(log, ("a", "1"), ("a", "2"))
    log.roll(NOW_MS)
    path = log.segments.first.log_path
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)

    with pytest.raises(DecodeError):
        finished(compact(plan_of(log)))

    assert list(log.directory.glob("*.cleaned")) == []


def test_records_that_lie_in_another_order_than_their_offsets_are_judged_by_these(log: Log) -> None:
    """No client sends them so, and a broker that only looks at headers lets them pass."""
    batch = build_batch([SimpleRecord(key, b"1", (), NOW_MS) for key in (b"a", b"b", b"c")])
    payload = bytes(batch[HEADER_SIZE:])
    records = [payload[start:end] for start, _, end, *_ in iterate_spans(payload, 3)]
    header = read_header(batch)._replace(base_offset=log.log_end_offset)
    misordered = assemble_batch(header, b"".join(records[place] for place in (1, 2, 0)))
    log.append_as_leader(memoryview(misordered), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    put(log, ("b", "2"))
    log.roll(NOW_MS)

    run(log)

    assert sorted(pairs_of(log)) == [(0, "a", "1"), (2, "c", "1"), (3, "b", "2")]


def test_a_compaction_that_is_ended_leaves_nothing(log: Log) -> None:
    for number in range(100):
        put(log, (f"key{number % 50}", "v" * 50))
    steps = compact(plan_of(log, read_bytes=300))
    while not list(log.directory.glob("*.cleaned")):
        next(steps)

    steps.close()

    assert list(log.directory.glob("*.cleaned")) == []


@pytest.mark.parametrize("change", ["truncated and grown again", "retained"])
def test_what_was_compacted_of_a_log_that_has_changed_is_thrown_away(log: Log, change: str) -> None:
    for number in range(100):
        put(log, (f"key{number % 50}", "v" * 50))
    plan = plan_of(log)
    result = finished(compact(plan))
    if change == "retained":
        log.set_log_start_offset(plan.segments[1].base_offset)
        log.delete_old_segments(NOW_MS)
    else:
        log.truncate_to(plan.segments[-1].base_offset + 1)
        for number in range(50):
            put(log, (f"new{number}", "v" * 50))
    before = pairs_of(log)

    assert not swap(log, plan, result)

    assert last_values(records_of(log)) is not None
    if change != "retained":
        assert pairs_of(log) == before
    assert list(log.directory.glob("*.cleaned")) == []


def test_a_truncation_lowers_the_clean_end(log: Log) -> None:
    for number in range(30):
        put(log, (f"key{number % 5}", "v" * 50))
    run(log)
    assert log.clean_end_offset is not None and log.clean_end_offset > 4

    log.truncate_to(3)

    assert log.clean_end_offset is not None and log.clean_end_offset <= 3


def random_log(log: Log, draw: random.Random) -> None:
    """Batches of several producers, some in transactions, with tombstones and all codecs."""
    open_transactions: dict[int, int] = {}
    sequences = dict.fromkeys(range(4), 0)
    for _ in range(draw.randrange(20, 120)):
        pairs = [
            (f"k{draw.randrange(12)}" * draw.choice((1, 1, 20)), draw.choice((None, "v", "w" * 30))) for _ in range(draw.randrange(1, 6))
        ]
        producer_id = draw.randrange(-1, 4)
        codec = draw.choice(list(Compression))
        timestamp = NOW_MS + draw.randrange(1000)
        if producer_id < 0:
            put(log, *pairs, compression=codec, timestamp=timestamp)
            continue
        is_transactional = producer_id < 2
        if is_transactional and draw.random() < 0.3 and producer_id in open_transactions:
            end_transaction(log, draw.choice((ControlRecordType.ABORT, ControlRecordType.COMMIT)), producer_id=producer_id)
            del open_transactions[producer_id]
            continue
        put(
            log, *pairs, compression=codec, timestamp=timestamp, producer_id=producer_id, producer_epoch=0,
            base_sequence=sequences[producer_id], is_transactional=is_transactional,
        )  # fmt: skip
        sequences[producer_id] += len(pairs)
        if is_transactional:
            open_transactions.setdefault(producer_id, 1)
    for producer_id in open_transactions:
        end_transaction(log, draw.choice((ControlRecordType.ABORT, ControlRecordType.COMMIT)), producer_id=producer_id)


def committed_values(log: Log) -> dict[bytes | None, bytes]:
    """The last value of each key as a read_committed consumer sees it."""
    aborted = log.segments.find_aborted(log.log_start_offset, log.log_end_offset)
    hidden = [header for header in headers_of(log) if any(_is_part_of(header, each) for each in aborted)]
    offsets = {offset for header in hidden for offset in range(header.base_offset, header.next_offset)}
    return last_values([record for record in records_of(log) if record.offset not in offsets])


def _is_part_of(header: BatchHeader, aborted: AbortedTransaction) -> bool:
    is_inside = aborted.first_offset <= header.base_offset <= aborted.last_offset
    return header.is_transactional and header.producer_id == aborted.producer_id and is_inside


@pytest.mark.parametrize("seed", range(6))
def test_the_last_committed_value_of_every_key_is_the_same_after_any_compactions(open_log: OpenLog, seed: int) -> None:
    draw = random.Random(seed)
    log = open_log(cleanup_policy=("compact",), segment_bytes=draw.choice((700, 1500, 100_000)), index_interval_bytes=100)
    now_ms = NOW_MS
    for _ in range(3):
        random_log(log, draw)
        log.roll(now_ms)
        before, end = committed_values(log), log.log_end_offset
        producers = {each: entry.batches[-1].last_sequence for each, entry in log.producers.producers.items() if entry.batches}

        run(log, now_ms=now_ms, limit_bytes=draw.choice((1000, 1 << 20)), read_bytes=draw.choice((100, 5000)))

        assert committed_values(log) == before
        log.close()
        log = reopen(open_log, log)
        assert (committed_values(log), log.log_end_offset) == (before, end)
        assert {each: entry.batches[-1].last_sequence for each, entry in log.producers.producers.items() if entry.batches} == producers
        now_ms += DAY_MS


def reopen(open_log: OpenLog, log: Log) -> Log:
    """As after a kill, with all of it to be recovered and no snapshot of the producers."""
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    found = open_log(cleanup_policy=("compact",), segment_bytes=log.config.segment_bytes, index_interval_bytes=100)
    found.set_high_watermark(found.log_end_offset)
    found.clean_end_offset = log.clean_end_offset
    return found
