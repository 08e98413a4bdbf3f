"""The metadata log on a directory: what a start finds, what divergence cuts off, and what snapshots leave."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from broker.quorum.listening import BatchReader
from broker.quorum.log import QuorumLog, control_batch, log_config
from broker.quorum.raft_log import OffsetAndEpoch, Position, check_position, truncation_offset
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from protocol.messages.stored.control_records import KRaftVersionRecord, LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord
from protocol.records import ControlRecordType, iterate_headers
from storage.errors import StorageError
from tests.broker.quorum.test_driver import decode, encode

SEGMENT_BYTES = 300


def open_log(root: Path) -> QuorumLog:
    return QuorumLog.open(root, log_config(SEGMENT_BYTES, 1 << 40), encode, now_ms=0)


def append(log: QuorumLog, *numbers: int, epoch: int = 1) -> int:
    if log.last_epoch != epoch:
        log.begin_epoch(epoch)
    return log.append_records(numbers, epoch=epoch, now_ms=0)


def voters(*node_ids: int) -> VoterSet:
    return VoterSet([Voter(ReplicaKey(node_id, bytes([node_id] * 16)), {"CONTROLLER": ("host", 9093)}, (0, 1)) for node_id in node_ids])


def snapshot_content(*numbers: int, kraft: VoterSet | None = None) -> bytes:
    head: list[tuple[ControlRecordType, Any]] = [(ControlRecordType.SNAPSHOT_HEADER, SnapshotHeaderRecord())]
    if kraft is not None:
        head.append((ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=1)))
        head.append((ControlRecordType.KRAFT_VOTERS, kraft.to_record()))
    footer = [(ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord())]
    count = len(head)
    return b"".join(
        (
            control_batch(head, base_offset=0, epoch=1, now_ms=0),
            encode(numbers, base_offset=count, epoch=1, now_ms=0),
            control_batch(footer, base_offset=count + len(numbers), epoch=1, now_ms=0),
        )
    )


def fetch_snapshot(log: QuorumLog, snapshot: OffsetAndEpoch, content: bytes) -> list[Any]:
    position = log.begin_snapshot(snapshot)
    assert position == 0
    for start in range(0, len(content), 50):
        log.append_snapshot(snapshot, start, content[start : start + 50])
    return log.finish_snapshot(snapshot, now_ms=0)


def numbers_in(log: QuorumLog, start: int = 0) -> list[int]:
    reader, found, offset = BatchReader(log, decode), [], start
    while offset < log.end_offset:
        batch = reader.read(offset, log.end_offset)
        found += batch.records
        offset = batch.offset + 1
    return found


def test_a_killed_log_opens_with_everything_written_and_its_epochs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 1, 2)
    append(log, 3, epoch=4)
    log.close()

    again = open_log(tmp_path)

    assert (again.end_offset, again.last_epoch) == (3, 4)
    assert numbers_in(again) == [1, 2, 3]
    assert again.end_of_epoch(1) == OffsetAndEpoch(2, 1)


def test_a_torn_tail_is_cut_at_every_length(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(3):
        append(log, number)
    path = log.log.directory / "00000000000000000000.log"
    log.close()
    content = path.read_bytes()
    ends = [position + header.size_bytes for position, header in iterate_headers(content)]

    for length in range(0, len(content), 13):
        copy = tmp_path / f"copy-{length}"
        copy.mkdir()
        shutil.copytree(path.parent, copy / path.parent.name)
        (copy / path.parent.name / path.name).write_bytes(content[:length])
        again = open_log(copy)
        assert numbers_in(again) == list(range(sum(end <= length for end in ends)))
        append(again, 77)
        assert numbers_in(again)[-1] == 77
        again.close()


def test_a_diverging_end_is_cut_off_and_replaced(tmp_path: Path) -> None:
    """The leader has offsets 0 and 1 of epoch 1, then epoch 3; this log has a third of epoch 1 and one of epoch 2."""
    log = open_log(tmp_path)
    append(log, 1, 2)
    append(log, 3)
    append(log, 4, epoch=2)
    leader = open_log(_made(tmp_path / "leader"))
    append(leader, 1, 2)
    append(leader, 30, 40, epoch=3)

    check = check_position(leader, log.end_offset, log.last_epoch)
    log.truncate_to(truncation_offset(log, check.end), now_ms=0)
    content = leader.read(log.end_offset, max_bytes=1000)
    log.append_fetched(content if isinstance(content, bytes) else content.read(), leader_epoch=3, now_ms=0)
    log.close()
    again = open_log(tmp_path)

    assert check.position is Position.DIVERGING and check.end == OffsetAndEpoch(2, 1)
    assert numbers_in(again) == numbers_in(leader) == [1, 2, 30, 40]
    assert (again.last_epoch, again.end_of_epoch(1)) == (3, OffsetAndEpoch(2, 1))


def test_batches_of_a_later_epoch_than_the_leaders_are_left_out(tmp_path: Path) -> None:
    """KAFKA-18723."""
    log = open_log(tmp_path)

    log.append_fetched(
        encode([1], base_offset=0, epoch=1, now_ms=0) + encode([2], base_offset=1, epoch=2, now_ms=0), leader_epoch=1, now_ms=0
    )

    assert numbers_in(log) == [1]


def test_voters_are_found_in_the_log_behind_the_newest_snapshot(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin_epoch(1)
    log.append_control_records([(ControlRecordType.LEADER_CHANGE, LeaderChangeMessage(leader_id=1))], epoch=1, now_ms=0)
    fetch_snapshot(log, OffsetAndEpoch(10, 1), snapshot_content(1, 2, kraft=voters(1, 2)))
    append(log, 5)
    log.append_control_records([(ControlRecordType.KRAFT_VOTERS, voters(1).to_record())], epoch=1, now_ms=0)
    log.close()

    records = list(open_log(tmp_path).control_records())

    assert [(record.offset, record.type) for record in records] == [
        (9, ControlRecordType.KRAFT_VERSION),
        (9, ControlRecordType.KRAFT_VOTERS),
        (11, ControlRecordType.KRAFT_VOTERS),
    ]
    assert [VoterSet.from_record(record.value) for record in records[1:]] == [voters(1, 2), voters(1)]


def test_a_fetched_snapshot_begins_the_log_anew_and_older_ones_go(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 1, 2, 3)
    fetch_snapshot(log, OffsetAndEpoch(10, 1), snapshot_content(1))

    found = fetch_snapshot(log, OffsetAndEpoch(20, 6), snapshot_content(2, kraft=voters(1)))
    offset = append(log, 9, epoch=6)
    log.close()
    again = open_log(tmp_path)

    assert [record.type for record in found] == [ControlRecordType.KRAFT_VERSION, ControlRecordType.KRAFT_VOTERS]
    assert offset == 20 and (again.start_offset, again.end_offset, again.last_epoch) == (20, 21, 6)
    assert (again.earliest_snapshot, again.latest_snapshot) == (OffsetAndEpoch(20, 6), OffsetAndEpoch(20, 6))
    assert [list(batch) for batch in BatchReader(again, decode).open_snapshot(OffsetAndEpoch(20, 6)).batches()] == [[2]]


def test_a_crash_between_a_fetched_snapshot_and_the_cut_of_the_log_is_made_good(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 1, 2, 3)
    (log.log.directory / "00000000000000000010-0000000002.checkpoint").write_bytes(snapshot_content(1))
    log.close()

    again = open_log(tmp_path)

    assert (again.start_offset, again.end_offset, again.last_epoch) == (10, 10, 2)


def test_a_crash_in_the_middle_of_the_cut_is_made_good(tmp_path: Path) -> None:
    """It left an empty log that begins where the snapshot ends, and the epochs from before: the leader called them diverging for ever."""
    log = open_log(tmp_path)
    append(log, 1, 2, 3, epoch=3)
    log.log.flush()
    epochs = tmp_path / "__cluster_metadata-0" / "leader-epoch-checkpoint"
    before = epochs.read_bytes()
    fetch_snapshot(log, OffsetAndEpoch(100, 4), snapshot_content(1))
    log.log.close()
    epochs.write_bytes(before)

    log = open_log(tmp_path)

    assert (log.start_offset, log.end_offset, log.last_epoch) == (100, 100, 4)


@pytest.mark.parametrize("cut", range(1, 230, 19))
def test_a_snapshot_without_its_end_is_passed_over(tmp_path: Path, cut: int) -> None:
    log = open_log(tmp_path)
    append(log, 1, 2, 3)
    content = snapshot_content(1)
    (log.log.directory / "00000000000000000002-0000000001.checkpoint").write_bytes(content[: len(content) - cut])
    log.close()

    again = open_log(tmp_path)

    assert again.latest_snapshot is None and numbers_in(again) == [1, 2, 3]


def test_a_damaged_snapshot_that_the_log_needs_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fetch_snapshot(log, OffsetAndEpoch(10, 1), snapshot_content(1))
    path = log.snapshots.path_of(OffsetAndEpoch(10, 1))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    log.close()

    with pytest.raises(StorageError, match="snapshot"):
        open_log(tmp_path)


def test_the_log_before_a_snapshot_goes_in_whole_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(40):
        append(log, number)
    log.log.flush()
    log.set_high_watermark(log.end_offset)
    snapshot = OffsetAndEpoch(30, 1)
    (log.log.directory / "00000000000000000030-0000000001.checkpoint").write_bytes(snapshot_content(1))
    log.snapshots.note_written(snapshot)

    log.delete_before(snapshot, now_ms=0)
    log.take_deletions([])()
    log.close()
    again = open_log(tmp_path)

    assert 0 < again.start_offset <= 30
    assert numbers_in(again, 30) == list(range(30, 40))
    assert list(again.log.directory.glob("*.deleted")) == []


def test_a_reader_goes_on_where_it_was_and_a_hole_is_told(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(4):
        append(log, number)
    reader = BatchReader(log, decode)

    assert [reader.read(offset, 4).records for offset in (0, 1, 3, 2)] == [[0], [1], [3], [2]]
    with pytest.raises(StorageError, match="nothing"):
        reader.read(3, 3)


def test_the_newest_timestamp_is_known(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin_epoch(1)
    log.append_records([1], epoch=1, now_ms=70)
    log.append_fetched(encode([2], base_offset=1, epoch=1, now_ms=90), leader_epoch=1, now_ms=0)

    assert log.last_timestamp == 90


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def test_records_are_numbers_here() -> None:
    """The encoding of these tests, against itself."""
    (only,) = decode(memoryview(encode([1, 2], base_offset=5, epoch=3, now_ms=0)), "")

    assert (only.base_offset, only.offset, only.epoch, only.records) == (5, 6, 3, [1, 2])
    assert struct.calcsize(">q") == 8
