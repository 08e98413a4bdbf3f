"""What a restart finds after a kill, a power cut or a clean stop. Reopening without close is the kill."""

from __future__ import annotations

import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.topic import LogConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.records import ControlRecordType, build_control_batch, encode_end_transaction_value
from storage import log_opener
from storage.errors import StorageError
from storage.leader_epochs import EpochEntry
from storage.log import Log
from storage.validation import AppendOrigin
from tests.storage.conftest import NOW_MS, TOPIC_ID, OpenLog, append, append_idempotent, batch, read_all_offsets, read_offsets
from tests.storage.declared_files import assert_files_agree, last_offset_of, read_batches, size_of

FIRST_LOG = "00000000000000000000.log"
PAGE_BYTES = 4096


def fill(log: Log, batches: int = 50) -> None:
    for number in range(batches):
        append(log, 1 + number % 3, size=50 + 40 * (number % 5))


def batch_ends(log_file: Path) -> list[tuple[int, int]]:
    """(end position, end offset) of each batch of a segment file."""
    return [(position + size_of(batch), last_offset_of(batch.header) + 1) for position, batch in read_batches(log_file)]


# -- kill ---------------------------------------------------------------------------------------------------------------


def test_kill_keeps_every_appended_batch(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=3000)
    fill(log)

    reopened = open_log(segment_bytes=3000)

    assert read_all_offsets(reopened) == list(range(log.log_end_offset))
    assert append(reopened).base_offset == log.log_end_offset


def test_kill_keeps_leader_epochs(open_log: OpenLog) -> None:
    log = open_log()
    append(log, 2, leader_epoch=3)
    append(log, 2, leader_epoch=8)

    assert open_log().leader_epochs.entries() == [EpochEntry(3, 0), EpochEntry(8, 2)]


def test_lost_leader_epoch_file_is_rebuilt_from_the_batches(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    append(log, 2, leader_epoch=3)
    append(log, 2, leader_epoch=8)
    log.flush()
    (directory / "leader-epoch-checkpoint").unlink()

    assert open_log().leader_epochs.entries() == [EpochEntry(3, 0), EpochEntry(8, 2)]


def test_a_segment_whose_removal_a_power_cut_has_undone_is_set_aside(open_log: OpenLog, directory: Path) -> None:
    """It is whole by its checksums; its epochs are older than those of the segment before it."""
    log = open_log()
    append(log, 2, leader_epoch=3)
    log.roll(NOW_MS)
    append(log, 2, leader_epoch=4)
    removed = (directory / "00000000000000000002.log").read_bytes()
    log.truncate_to(1)
    append(log, 1, leader_epoch=7)
    (directory / "00000000000000000002.log").write_bytes(removed)

    recovered = open_log()

    assert recovered.leader_epochs.entries() == [EpochEntry(7, 0)]
    assert recovered.log_end_offset == 1
    assert (directory / "set-aside.1" / "00000000000000000002.log").read_bytes() == removed


@pytest.mark.parametrize("was_clean_stop", [False, True])
def test_the_whole_duplicate_window_survives_a_restart(open_log: OpenLog, was_clean_stop: bool) -> None:
    """Kafka's snapshot keeps one batch per producer: without the refill a retry of an older one would be refused."""
    log = open_log()
    for sequence in range(7):
        append_idempotent(log, sequence)
    if was_clean_stop:
        log.close()

    reopened = open_log(was_clean_stop=was_clean_stop)

    results = [append_idempotent(reopened, sequence) for sequence in range(2, 7)]
    assert [(result.is_duplicate, result.base_offset) for result in results] == [(True, offset) for offset in range(2, 7)]
    assert append_idempotent(reopened, 7).base_offset == 7


def test_the_duplicate_window_reaches_back_over_a_roll(open_log: OpenLog) -> None:
    log = open_log()
    for sequence in range(4):
        append_idempotent(log, sequence)
    log.roll(NOW_MS)
    append_idempotent(log, 4)
    log.flush()

    reopened = open_log(recovery_point=4)

    assert append_idempotent(reopened, 0).is_duplicate


def test_open_and_aborted_transactions_survive_a_kill(open_log: OpenLog, directory: Path) -> None:
    log = open_log(segment_bytes=1000)
    append(log, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    append(log, producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
    fill(log)
    marker = build_control_batch(
        ControlRecordType.ABORT, encode_end_transaction_value(0), timestamp=NOW_MS, producer_id=1, producer_epoch=0
    )
    log.append_as_leader(memoryview(marker), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    expected = log.segments.find_aborted(0, log.log_end_offset)

    reopened = open_log(segment_bytes=1000)
    reopened.set_high_watermark(reopened.log_end_offset)

    assert reopened.segments.find_aborted(0, reopened.log_end_offset) == expected != []
    assert reopened.last_stable_offset == 1
    reopened.close()
    assert_files_agree(directory)


def test_lost_and_corrupt_indexes_are_rebuilt(open_log: OpenLog, directory: Path) -> None:
    log = open_log(segment_bytes=30_000)
    for number in range(400):
        append(log, size=200, timestamp=NOW_MS + number)
    log.close()
    expected = {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in (".index", ".timeindex")}
    for number, name in enumerate(sorted(expected)):
        if number % 2:
            (directory / name).unlink()
        else:
            (directory / name).write_bytes(expected[name] + bytes(240))

    reopened = open_log(segment_bytes=30_000)

    assert read_all_offsets(reopened) == list(range(400))
    assert reopened.find_offset_by_timestamp(NOW_MS + 250, end_offset=400) == (NOW_MS + 250, 250, 0)
    reopened.close()
    assert {name: (directory / name).read_bytes() for name in expected} == expected


def test_clean_stop_with_kafkas_preallocated_index_tail_is_repaired(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    fill(log, 200)
    log.close()
    with (directory / "00000000000000000000.index").open("ab") as index:
        index.write(bytes(800))

    reopened = open_log(was_clean_stop=True)

    assert read_all_offsets(reopened) == list(range(log.log_end_offset))


def test_segments_below_the_recovery_point_are_not_scanned(open_log: OpenLog, directory: Path) -> None:
    log = open_log(segment_bytes=2000)
    fill(log)
    log.flush()
    second_base = [segment.base_offset for segment in log.segments][1]
    data = bytearray((directory / FIRST_LOG).read_bytes())
    data[100] ^= 1
    (directory / FIRST_LOG).write_bytes(data)

    assert open_log(segment_bytes=2000, recovery_point=second_base).log_end_offset == log.log_end_offset
    assert open_log(segment_bytes=2000, recovery_point=0).log_end_offset == 0


def test_recovery_point_does_not_pass_what_was_synchronised(open_log: OpenLog) -> None:
    log = open_log()
    fill(log)

    reopened = open_log(recovery_point=3)

    assert reopened.durable_end_offset == 3
    reopened.flush()
    assert reopened.durable_end_offset == reopened.log_end_offset


@pytest.mark.parametrize("was_clean_stop", [False, True])
def test_loading_many_segments_leaves_one_open(open_log: OpenLog, directory: Path, was_clean_stop: bool) -> None:
    log = open_log(segment_bytes=1000)
    for sequence in range(200):
        append_idempotent(log, sequence)
    log.close()
    for snapshot in directory.glob("*.snapshot"):
        snapshot.unlink()

    reopened = open_log(segment_bytes=1000, was_clean_stop=was_clean_stop)

    assert len(reopened.segments) > 20
    assert [segment.is_loaded for segment in reopened.segments].count(True) == 1
    assert append_idempotent(reopened, 198).is_duplicate


# -- torn tails ---------------------------------------------------------------------------------------------------------


@pytest.mark.long("sixty torn logs")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=st.sampled_from(["cut", "zeros", "zeros then data", "noise"]), where=st.floats(0, 1), seed=st.binary(min_size=64, max_size=64))
def test_any_torn_tail_leaves_the_prefix_below_it(tmp_path_factory: pytest.TempPathFactory, shape: str, where: float, seed: bytes) -> None:
    """The shapes that ext4 leaves after a power cut: a clean cut, zeros to the page's end, zeros and then valid later pages."""
    directory = tmp_path_factory.mktemp("torn") / "t-0"
    directory.mkdir()
    config = replace(LogConfig(), segment_bytes=20_000)
    log = log_opener.open_log(directory, "t", 0, TOPIC_ID, config, now_ms=NOW_MS)
    fill(log, 200)
    files = sorted(directory.glob("*.log"))
    torn_file = files[int(where * (len(files) - 1))]
    ends, data = batch_ends(torn_file), bytearray(torn_file.read_bytes())
    tear = min(int(where * len(data)), len(data) - 1)
    page_end = min((tear // PAGE_BYTES + 1) * PAGE_BYTES, len(data))
    if shape == "cut":
        del data[tear:]
    elif shape == "noise":
        data[tear:page_end] = (seed * PAGE_BYTES)[: page_end - tear]
    else:
        data[tear:page_end] = bytes(page_end - tear)
        if shape == "zeros":
            del data[page_end:]
    changed = bytes(data) != torn_file.read_bytes()
    torn_file.write_bytes(data)
    whole = [end_offset for end, end_offset in ends if end <= tear]
    least = whole[-1] if whole else int(torn_file.stem)
    # A file that is cut between two batches looks whole: the later segments stay, behind a hole.
    has_hole = shape == "cut" and tear in (0, *(end for end, _ in ends)) and torn_file != files[-1]
    hole = range(least, ends[-1][1]) if has_hole else range(0)

    reopened = log_opener.open_log(directory, "t", 0, TOPIC_ID, config, now_ms=NOW_MS)

    expected = [offset for offset in range(reopened.log_end_offset) if offset not in hole]
    assert read_all_offsets(reopened) == expected
    assert reopened.log_end_offset >= least
    if changed and shape != "cut":
        assert reopened.log_end_offset <= max(offset for end, offset in [(0, least), *ends] if end < page_end or offset == least)
    assert append(reopened).base_offset == reopened.log_end_offset - 1
    again = log_opener.open_log(directory, "t", 0, TOPIC_ID, config, now_ms=NOW_MS)
    assert read_all_offsets(again) == [*expected, reopened.log_end_offset - 1]
    again.close()
    assert_files_agree(directory)
    shutil.rmtree(directory)


def test_valid_data_after_zeros_is_never_taken_up_again(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    fill(log)
    ends = batch_ends(directory / FIRST_LOG)
    data = bytearray((directory / FIRST_LOG).read_bytes())
    start, end = ends[9][0], ends[19][0]
    data[start:end] = bytes(end - start)
    (directory / FIRST_LOG).write_bytes(data)

    reopened = open_log()

    assert reopened.log_end_offset == ends[9][1]
    assert (directory / FIRST_LOG).stat().st_size == start


def test_segments_after_a_torn_one_are_set_aside(open_log: OpenLog, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(segment_bytes=2000)
    fill(log)
    later = {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))[1:]}
    with (directory / FIRST_LOG).open("r+b") as file:
        file.truncate(1500)

    reopened = open_log(segment_bytes=2000)

    assert [path.name for path in directory.glob("*.log")] == [FIRST_LOG]
    assert {path.name: path.read_bytes() for path in (directory / "set-aside.1").glob("*.log")} == later
    assert read_all_offsets(reopened) == list(range(reopened.log_end_offset))
    assert f"{len(later)} later segments, which are set aside in {directory / 'set-aside.1'}" in caplog.text


def test_what_was_set_aside_stays_over_later_starts_and_tears(open_log: OpenLog, directory: Path) -> None:
    for _ in range(2):
        log = open_log(segment_bytes=2000)
        fill(log)
        with (directory / FIRST_LOG).open("r+b") as file:
            file.truncate(1500)
        open_log(segment_bytes=2000)
    kept = {folder: sorted(path.name for path in folder.iterdir()) for folder in directory.glob("set-aside.*")}

    open_log(segment_bytes=2000).close()
    open_log(segment_bytes=2000, was_clean_stop=True)

    assert sorted(folder.name for folder in kept) == ["set-aside.1", "set-aside.2"]
    assert {folder: sorted(path.name for path in folder.iterdir()) for folder in directory.glob("set-aside.*")} == kept


def test_valid_batches_behind_a_rotten_one_of_the_same_segment_are_kept(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    fill(log)
    end = batch_ends(directory / FIRST_LOG)[9][0]
    data = bytearray((directory / FIRST_LOG).read_bytes())
    data[end + 80] ^= 1
    (directory / FIRST_LOG).write_bytes(data)

    reopened = open_log()

    assert reopened.size_bytes == end
    assert (directory / "set-aside.1" / f"{FIRST_LOG}.from-{end}").read_bytes() == data[end:]


def test_segment_that_is_rotten_from_its_first_batch_on_is_set_aside_whole(open_log: OpenLog, directory: Path) -> None:
    """Its offsets are not given out again."""
    log = open_log(segment_bytes=2000)
    fill(log)
    second = sorted(directory.glob("*.log"))[1]
    data = bytearray(second.read_bytes())
    data[80] ^= 1
    second.write_bytes(data)

    reopened = open_log(segment_bytes=2000)

    assert reopened.log_end_offset == int(second.stem)
    assert (directory / "set-aside.1" / second.name).read_bytes() == data
    assert append(reopened).base_offset == int(second.stem)


def test_segment_that_the_one_before_reaches_into_is_set_aside(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    append(log, 5)
    (directory / "00000000000000000003.log").write_bytes(batch(2, base_offset=3))

    reopened = open_log()

    assert reopened.log_end_offset == 5
    assert (directory / "set-aside.1" / "00000000000000000003.log").exists()
    assert append(reopened).base_offset == 5


def test_half_written_batch_leaves_nothing_to_set_aside(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    fill(log)
    with (directory / FIRST_LOG).open("r+b") as file:
        file.truncate((directory / FIRST_LOG).stat().st_size - 1)

    open_log()

    assert list(directory.glob("set-aside.*")) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_an_old_format_are_refused_and_not_cut_off(open_log: OpenLog, directory: Path, magic: int) -> None:
    """Kafka serves them still. Cut off, they would be lost for it too."""
    message = bytes([magic, 0]) + bytes(8 * magic) + (1).to_bytes(4) + b"k" + (1).to_bytes(4) + b"v"
    old = (0).to_bytes(8) + (len(message) + 4).to_bytes(4) + zlib.crc32(message).to_bytes(4) + message
    content = old * 3 + bytes(batch(2, base_offset=3))
    (directory / FIRST_LOG).write_bytes(content)

    with pytest.raises(StorageError, match=f"holds message format {magic}"):
        open_log()

    assert (directory / FIRST_LOG).read_bytes() == content


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_emptied_tails_of_compacted_segments_cost_no_record_under_any_policy(open_log: OpenLog, directory: Path, policy: str) -> None:
    """The topic was compacted once; its policy today says nothing about its files."""
    log = open_log()
    for base_offset in (0, 100, 200):
        log.append_as_follower(batch(5, base_offset=base_offset), now_ms=NOW_MS)
        log.roll(NOW_MS, base_offset + 100)
    log.append_as_follower(batch(5, base_offset=300), now_ms=NOW_MS)

    reopened = open_log(cleanup_policy=tuple(policy.split(",")))

    assert read_all_offsets(reopened) == [base + number for base in (0, 100, 200, 300) for number in range(5)]
    assert reopened.log_end_offset == 305
    assert list(directory.glob("set-aside.*")) == []


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, (0).to_bytes(8)),  # base offset that does not rise
        (8, (2**31 - 1).to_bytes(4)),  # length past the end
        (8, (10).to_bytes(4)),  # length below a header's
        (12, (0).to_bytes(4)),  # leader epoch that falls
        (16, b"\x01"),  # another magic
    ],
)
def test_header_fields_outside_the_checksum_are_checked(open_log: OpenLog, directory: Path, position: int, value: bytes) -> None:
    log = open_log()
    for _ in range(3):
        append(log, 2, leader_epoch=5)
    start = batch_ends(directory / FIRST_LOG)[1][0] + position
    data = bytearray((directory / FIRST_LOG).read_bytes())
    data[start : start + len(value)] = value
    (directory / FIRST_LOG).write_bytes(data)

    assert open_log().log_end_offset == 4


def test_gaps_between_batches_are_legal(open_log: OpenLog) -> None:
    """Compaction leaves them."""
    log = open_log()
    log.append_as_follower(batch(2, base_offset=10), now_ms=NOW_MS)
    log.append_as_follower(batch(2, base_offset=100), now_ms=NOW_MS)

    assert read_offsets(open_log(), 50) == [100, 101]


def test_torn_tail_forgets_the_producers_of_what_was_cut(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    append_idempotent(log, 0)
    append_idempotent(log, 1)
    with (directory / FIRST_LOG).open("r+b") as file:
        file.truncate((directory / FIRST_LOG).stat().st_size - 1)

    reopened = open_log()

    assert append_idempotent(reopened, 1).base_offset == 1
    with pytest.raises(KafkaError) as refusal:
        append_idempotent(reopened, 3)
    assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_empty_snapshot_after_a_power_cut_is_replaced_from_the_log(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    append_idempotent(log, 0)
    log.roll(NOW_MS)
    append_idempotent(log, 1)
    (directory / "00000000000000000001.snapshot").write_bytes(b"")

    reopened = open_log(recovery_point=1)

    assert append_idempotent(reopened, 0).is_duplicate
    assert append_idempotent(reopened, 2).base_offset == 2


# -- leftovers ----------------------------------------------------------------------------------------------------------


def test_leftovers_of_deletion_and_cleaning_are_removed(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    append(log)
    for name in ("00000000000000000000.log.deleted", "00000000000000000005.index.deleted", "00000000000000000000.log.cleaned"):
        (directory / name).write_bytes(b"x")
    (directory / "00000000000000000077.timeindex").write_bytes(b"")

    open_log()

    assert sorted(path.name for path in directory.glob("*.*") if path.suffix not in (".index", ".log", ".snapshot")) == [
        "00000000000000000000.timeindex"
    ]


def test_interrupted_swap_is_completed(open_log: OpenLog, directory: Path) -> None:
    """A compacted segment replaces the ones it was made from, which may not have been renamed yet."""
    log = open_log()
    append(log, 2)
    log.roll(NOW_MS)
    append(log, 2)
    log.roll(NOW_MS)
    append(log, 2)
    (directory / f"{FIRST_LOG}.swap").write_bytes(bytes(batch(1, base_offset=0)) + bytes(batch(1, base_offset=3)))

    reopened = open_log()

    assert [segment.base_offset for segment in reopened.segments] == [0, 4]
    assert read_all_offsets(reopened) == [0, 3, 4, 5]


def test_swap_beside_an_unfinished_split_is_dropped(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    append(log, 2)
    (directory / f"{FIRST_LOG}.swap").write_bytes(b"x")
    (directory / f"{FIRST_LOG}.cleaned").write_bytes(b"x")

    assert read_all_offsets(open_log()) == [0, 1]


def test_start_offset_beyond_a_whole_log_is_ignored(open_log: OpenLog, caplog: pytest.LogCaptureFixture) -> None:
    """It is about another log of that name, or about records that somebody took away."""
    log = open_log()
    append(log, 5)

    reopened = open_log(log_start_offset=100)

    assert (reopened.log_start_offset, reopened.log_end_offset) == (0, 5)
    assert read_all_offsets(reopened) == list(range(5))
    assert "start offset 100, which is ignored" in caplog.text


def test_log_torn_before_its_start_offset_starts_over_there(open_log: OpenLog, directory: Path) -> None:
    """Records that were deleted do not come back, and their offsets are not given out again."""
    log = open_log()
    fill(log)
    data = bytearray((directory / FIRST_LOG).read_bytes())
    data[80] ^= 1
    (directory / FIRST_LOG).write_bytes(data)

    reopened = open_log(log_start_offset=60)

    assert (reopened.log_start_offset, reopened.log_end_offset) == (60, 60)
    assert append(reopened).base_offset == 60
    assert (directory / "set-aside.1" / FIRST_LOG).read_bytes() == data


def test_recovery_point_beyond_the_end_vouches_for_nothing(open_log: OpenLog, directory: Path) -> None:
    log = open_log(segment_bytes=2000)
    fill(log)
    data = bytearray((directory / FIRST_LOG).read_bytes())
    data[80] ^= 1
    (directory / FIRST_LOG).write_bytes(data)

    reopened = open_log(segment_bytes=2000, recovery_point=log.log_end_offset + 1)

    assert (reopened.log_end_offset, reopened.recovery_point) == (0, 0)
