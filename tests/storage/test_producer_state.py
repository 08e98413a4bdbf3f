"""ProducerStateManager: duplicates, sequences, epochs, transactions, and what survives a restart."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records import (
    SEQUENCE_MAX,
    BatchHeader,
    ControlRecordType,
    EndTransactionMarker,
    SimpleRecord,
    build_batch,
    build_control_batch,
    encode_end_transaction_value,
    read_header,
)
from storage.producer_state import ProducerStateManager
from storage.producer_state_entry import BatchMetadata, CompletedTransaction
from storage.validation import AppendOrigin
from storage.verification import TransactionAppend

PID = 7
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def batch(sequence: int, *, count: int = 1, epoch: int = 0, pid: int = PID, offset: int = 0, transactional: bool = False) -> BatchHeader:
    records = [SimpleRecord(None, b"v", (), NOW_MS)] * count
    return read_header(
        build_batch(
            records, base_offset=offset, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, is_transactional=transactional
        )
    )


def append(manager: ProducerStateManager, header: BatchHeader, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    """Appends as a log does: check, write, record. A transactional batch was verified before."""
    transaction = None
    if header.is_transactional:
        guard = manager.start_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, supports_epoch_bump=False, now_ms=NOW_MS
        )
        transaction = TransactionAppend(guard, supports_epoch_bump=False)
    manager.check_append(header, origin, transaction=transaction)
    manager.record_append(header, base_offset=header.base_offset, timestamp=header.max_timestamp)
    manager.map_end_offset = header.next_offset


def end_transaction(
    manager: ProducerStateManager, offset: int, *, commit: bool = True, epoch: int = 0, pid: int = PID, coordinator_epoch: int = 0
) -> CompletedTransaction | None:
    marker = EndTransactionMarker(ControlRecordType.COMMIT if commit else ControlRecordType.ABORT, coordinator_epoch)
    value = encode_end_transaction_value(coordinator_epoch)
    header = read_header(
        build_control_batch(marker.control_type, value, timestamp=NOW_MS, base_offset=offset, producer_id=pid, producer_epoch=epoch)
    )
    manager.check_append(header, AppendOrigin.COORDINATOR, marker)
    completed = manager.record_append(header, base_offset=offset, timestamp=NOW_MS, marker=marker)
    manager.map_end_offset = offset + 1
    return completed


def refused_with(manager: ProducerStateManager, header: BatchHeader, origin: AppendOrigin = AppendOrigin.CLIENT) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        manager.check_append(header, origin)
    return caught.value.code


@pytest.fixture
def manager(tmp_path: Path) -> ProducerStateManager:
    return ProducerStateManager(tmp_path)


# Sequences and epochs


def test_an_unknown_producer_may_begin_with_any_sequence(manager: ProducerStateManager) -> None:
    append(manager, batch(42))

    assert manager.producers[PID].last_sequence == 42


def test_sequences_must_follow_each_other(manager: ProducerStateManager) -> None:
    append(manager, batch(0, count=3))
    append(manager, batch(3, count=2, offset=3))

    assert refused_with(manager, batch(6)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused_with(manager, batch(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero(manager: ProducerStateManager) -> None:
    append(manager, batch(SEQUENCE_MAX - 1, count=2))
    append(manager, batch(0, offset=2))

    assert manager.producers[PID].last_sequence == 0


def test_a_batch_across_the_wrap_is_followed_and_recognised(manager: ProducerStateManager) -> None:
    append(manager, batch(SEQUENCE_MAX, count=3))
    append(manager, batch(2, offset=3))

    assert manager.find_duplicate(batch(SEQUENCE_MAX, count=3)) == BatchMetadata(SEQUENCE_MAX, 1, 0, 2, NOW_MS)


def test_each_of_the_last_five_batches_is_a_duplicate_with_its_original_offset(manager: ProducerStateManager) -> None:
    for index in range(6):
        append(manager, batch(index * 2, count=2, offset=100 + index * 2))

    found = [manager.find_duplicate(batch(index * 2, count=2)) for index in range(6)]

    assert found[0] is None
    assert [metadata and metadata.first_offset for metadata in found[1:]] == [102, 104, 106, 108, 110]
    assert refused_with(manager, batch(0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_same_first_sequence_with_another_count_is_no_duplicate(manager: ProducerStateManager) -> None:
    append(manager, batch(0, count=2))

    assert manager.find_duplicate(batch(0, count=3)) is None
    assert manager.find_duplicate(batch(0, count=2, epoch=1)) is None
    assert manager.find_duplicate(batch(0, count=2, pid=8)) is None


def test_a_new_epoch_begins_with_zero_and_forgets_the_window(manager: ProducerStateManager) -> None:
    append(manager, batch(0, count=4))

    assert refused_with(manager, batch(4, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(manager, batch(0, epoch=1, offset=4))

    assert manager.find_duplicate(batch(0, count=4)) is None
    assert [b.first_offset for b in manager.producers[PID].batches] == [4]


def test_an_older_epoch_is_fenced(manager: ProducerStateManager) -> None:
    append(manager, batch(0, epoch=3))

    assert refused_with(manager, batch(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_coordinator_appends_without_sequences(manager: ProducerStateManager) -> None:
    """Transactional offset commits carry the producer's id but no sequence."""
    append(manager, batch(-1, transactional=True), AppendOrigin.COORDINATOR)
    append(manager, batch(-1, transactional=True, offset=1), AppendOrigin.COORDINATOR)

    assert manager.first_unstable_offset == 0


def test_a_refused_check_changes_nothing(manager: ProducerStateManager) -> None:
    append(manager, batch(0))
    before = list(manager.producers[PID].batches)

    refused_with(manager, batch(9, epoch=0))
    refused_with(manager, batch(9, epoch=1))

    assert manager.producers[PID].batches == before
    assert manager.producers[PID].producer_epoch == 0


# Transactions


def test_an_open_transaction_holds_the_first_unstable_offset(manager: ProducerStateManager) -> None:
    append(manager, batch(0, offset=5, transactional=True))
    append(manager, batch(0, pid=8, offset=6, transactional=True))

    assert manager.first_unstable_offset == 5


def test_a_completed_transaction_holds_it_until_the_high_watermark_passes_the_marker(manager: ProducerStateManager) -> None:
    append(manager, batch(0, offset=5, transactional=True))
    completed = end_transaction(manager, 6)
    assert completed == CompletedTransaction(PID, 5, 6, is_aborted=False)

    manager.complete_transaction(completed)
    assert manager.first_unstable_offset == 5
    manager.on_high_watermark_updated(6)
    assert manager.first_unstable_offset == 5
    manager.on_high_watermark_updated(7)
    assert manager.first_unstable_offset is None


def test_transactions_that_end_out_of_order_keep_the_oldest_offset(manager: ProducerStateManager) -> None:
    append(manager, batch(0, pid=1, offset=10, transactional=True))
    append(manager, batch(0, pid=2, offset=11, transactional=True))

    second = end_transaction(manager, 12, pid=2, commit=False)
    assert second is not None
    assert manager.last_stable_offset(second) == 10
    manager.complete_transaction(second)
    first = end_transaction(manager, 13, pid=1)
    assert first is not None
    assert manager.last_stable_offset(first) == 14
    manager.complete_transaction(first)

    assert manager.first_unstable_offset == 10


@pytest.mark.parametrize("seed", range(6))
def test_the_first_unstable_offset_is_that_of_a_walk_over_all_transactions(manager: ProducerStateManager, seed: int) -> None:
    random_source = random.Random(seed)
    ongoing: dict[int, int] = {}  # producer → first offset
    unreplicated: list[CompletedTransaction] = []
    high_watermark = 0

    for offset in range(400):
        if ongoing and random_source.random() < 0.5:
            pid = random_source.choice(list(ongoing))
            completed = end_transaction(manager, offset, pid=pid)
            assert completed is not None
            others = [first for other, first in ongoing.items() if other != pid]
            assert manager.last_stable_offset(completed) == min(others, default=offset + 1)
            manager.complete_transaction(completed)
            unreplicated.append(CompletedTransaction(pid, ongoing.pop(pid), offset, False))
        else:
            pid = random_source.choice([pid for pid in range(30) if pid not in ongoing] or [30 + offset])
            append(manager, batch(-1, pid=pid, offset=offset, transactional=True), AppendOrigin.COORDINATOR)
            ongoing[pid] = offset
        if random_source.random() < 0.3:
            high_watermark = random_source.randint(high_watermark, offset + 1)
            manager.on_high_watermark_updated(high_watermark)
            unreplicated = [each for each in unreplicated if each.last_offset >= high_watermark]
        expected = min([*ongoing.values(), *(each.first_offset for each in unreplicated)], default=None)
        assert manager.first_unstable_offset == expected
        assert manager.has_transactions == (expected is not None)


def test_a_marker_without_records_completes_nothing(manager: ProducerStateManager) -> None:
    assert end_transaction(manager, 0) is None
    assert manager.producers[PID].producer_epoch == 0


def test_a_marker_that_raises_the_epoch_starts_a_new_sequence(manager: ProducerStateManager) -> None:
    """Transactions v2 bump the epoch with every end (KIP-890)."""
    append(manager, batch(0, count=3, transactional=True))
    end_transaction(manager, 3, epoch=1)

    assert refused_with(manager, batch(3, epoch=0, transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(manager, batch(0, epoch=1, offset=4, transactional=True))


def test_a_batch_outside_the_open_transaction_is_refused(manager: ProducerStateManager) -> None:
    append(manager, batch(0, transactional=True))

    assert refused_with(manager, batch(1)) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_an_older_coordinator_is_fenced(manager: ProducerStateManager) -> None:
    end_transaction(manager, 0, coordinator_epoch=5)

    with pytest.raises(KafkaError) as caught:
        end_transaction(manager, 1, coordinator_epoch=4)

    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_of_an_older_producer_epoch_is_fenced(manager: ProducerStateManager) -> None:
    append(manager, batch(0, epoch=2, transactional=True))

    with pytest.raises(KafkaError) as caught:
        end_transaction(manager, 1, epoch=1)

    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


# Expiry


def test_silent_producers_expire_but_not_with_an_open_transaction(manager: ProducerStateManager) -> None:
    append(manager, batch(0, pid=1))
    append(manager, batch(0, pid=2, offset=1, transactional=True))

    assert manager.remove_expired(NOW_MS + DAY_MS - 1) == 0
    assert manager.remove_expired(NOW_MS + DAY_MS) == 1
    assert list(manager.producers) == [2]


# Snapshots


def test_a_snapshot_is_kafkas_byte_for_byte(manager: ProducerStateManager) -> None:
    append(manager, batch(10, count=5, epoch=2, offset=100, transactional=True))

    path = manager.take_snapshot()

    assert path is not None and path.name == "00000000000000000105.snapshot"
    content = path.read_bytes()
    assert content[:2].hex() == "0001"
    assert content[6:].hex() == (
        "00000001"  # entries
        "0000000000000007" "0002" "0000000e"  # producer id, epoch, last sequence
        "0000000000000068" "00000004"  # last offset, offset delta
        "0000018bcfe56800" "ffffffff" "0000000000000064"  # timestamp, coordinator epoch, open transaction
    )  # fmt: skip


@pytest.mark.parametrize("fsync", [True, False])
def test_state_survives_a_kill_after_the_snapshot(manager: ProducerStateManager, fsync: bool) -> None:
    append(manager, batch(SEQUENCE_MAX - 1, count=2, pid=1, offset=8))
    append(manager, batch(3, count=2, pid=2, epoch=4, offset=10, transactional=True))
    end_transaction(manager, 12, pid=3, coordinator_epoch=9)
    manager.take_snapshot(fsync=fsync)

    reopened = ProducerStateManager(manager.directory)
    reopened.truncate_and_reload(0, 13, NOW_MS)

    assert reopened.map_end_offset == 13
    assert reopened.producers == manager.producers
    assert reopened.first_unstable_offset == 10


def test_a_corrupt_snapshot_is_deleted_and_the_one_before_it_loaded(manager: ProducerStateManager) -> None:
    append(manager, batch(0))
    manager.take_snapshot()
    append(manager, batch(1, offset=1))
    latest = manager.take_snapshot()
    assert latest is not None
    for content in (b"", latest.read_bytes()[:-1], latest.read_bytes()[:-1] + b"\x01", b"\x00\x02" + latest.read_bytes()[2:]):
        latest.write_bytes(content)

        reopened = ProducerStateManager(manager.directory)
        reopened.truncate_and_reload(0, 10, NOW_MS)

        assert reopened.map_end_offset == 1
        assert not latest.exists()


def test_snapshots_outside_the_log_are_deleted_on_truncation(manager: ProducerStateManager) -> None:
    for index in range(4):
        append(manager, batch(index, offset=index))
        manager.take_snapshot()

    manager.truncate_and_reload(1, 3, NOW_MS)

    assert sorted(path.name for path in manager.directory.iterdir()) == [f"{offset:020d}.snapshot" for offset in (2, 3)]
    assert manager.map_end_offset == 3
    assert manager.producers[PID].last_sequence == 2


def test_without_a_snapshot_the_state_begins_at_the_logs_start(manager: ProducerStateManager) -> None:
    append(manager, batch(0))

    manager.truncate_and_reload(0, 0, NOW_MS)

    assert manager.map_end_offset == 0
    assert manager.is_empty


def test_no_second_snapshot_at_the_same_offset(manager: ProducerStateManager) -> None:
    append(manager, batch(0))

    assert manager.take_snapshot() is not None
    assert manager.take_snapshot() is None


def test_expired_producers_are_not_loaded(manager: ProducerStateManager) -> None:
    append(manager, batch(0))
    manager.take_snapshot()

    reopened = ProducerStateManager(manager.directory)
    reopened.truncate_and_reload(0, 1, NOW_MS + DAY_MS)

    assert reopened.is_empty


def test_refill_restores_the_five_batch_window_after_a_kill(manager: ProducerStateManager) -> None:
    headers = [batch(index, offset=index) for index in range(8)]
    for header in headers:
        append(manager, header)
    manager.take_snapshot()

    reopened = ProducerStateManager(manager.directory)
    reopened.truncate_and_reload(0, 8, NOW_MS)
    assert len(reopened.producers[PID].batches) == 1
    reopened.refill(headers)

    assert reopened.producers == manager.producers


def test_refill_takes_nothing_of_an_older_epoch_or_of_an_unknown_producer(manager: ProducerStateManager) -> None:
    headers = [batch(0), batch(0, epoch=1, offset=1), batch(1, epoch=1, offset=2)]
    for header in headers:
        append(manager, header)
    manager.take_snapshot()

    reopened = ProducerStateManager(manager.directory)
    reopened.truncate_and_reload(0, 3, NOW_MS)
    reopened.refill([*headers, batch(0, pid=99, offset=1)])

    assert [b.first_offset for b in reopened.producers[PID].batches] == [1, 2]
    assert list(reopened.producers) == [PID]


def test_stray_snapshots_go_but_the_last_one_beyond_all_segments_stays(manager: ProducerStateManager) -> None:
    for index in range(5):
        append(manager, batch(index, offset=index))
        manager.take_snapshot()

    manager.remove_stray_snapshots([0, 2])

    assert sorted(path.name for path in manager.directory.iterdir()) == [f"{offset:020d}.snapshot" for offset in (2, 5)]


def test_snapshots_of_deleted_segments_are_marked(manager: ProducerStateManager) -> None:
    for index in range(3):
        append(manager, batch(index, offset=index))
        manager.take_snapshot()

    marked = manager.mark_snapshot_for_deletion(1)

    assert marked is not None and marked.name == "00000000000000000001.snapshot.deleted"
    assert marked.exists()
    assert manager.mark_snapshot_for_deletion(1) is None
    assert manager.latest_snapshot_offset == 3


def test_truncate_fully_forgets_everything(manager: ProducerStateManager) -> None:
    append(manager, batch(0, transactional=True))
    manager.take_snapshot()

    manager.truncate_fully_and_start_at(500)

    assert manager.is_empty and manager.first_unstable_offset is None
    assert manager.map_end_offset == 500
    assert list(manager.directory.iterdir()) == []


def test_a_raised_log_start_moves_the_end_of_an_empty_map(manager: ProducerStateManager) -> None:
    manager.on_log_start_offset_incremented(20)

    assert manager.map_end_offset == 20
