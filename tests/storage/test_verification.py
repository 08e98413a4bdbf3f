"""Verification of transactional batches: a log appends none that no coordinator was asked about since the last marker (KIP-890)."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode, KafkaError
from storage.log import Log
from storage.log_results import AppendResult
from storage.markers import TransactionMarker
from storage.producer_state import PRODUCER_ID_EXPIRATION_MS
from storage.validation import AppendOrigin
from storage.verification import TransactionAppend, VerificationGuard
from tests.storage.conftest import NOW_MS, OpenLog, batch

PID = 7


def start(log: Log, sequence: int = 0, *, epoch: int = 0, v2: bool = False, now_ms: int = NOW_MS) -> VerificationGuard | None:
    return log.start_verification(PID, epoch, sequence, supports_epoch_bump=v2, now_ms=now_ms)


def append(
    log: Log,
    guard: VerificationGuard | None,
    sequence: int = 0,
    *,
    epoch: int = 0,
    v2: bool = False,
    is_required: bool = True,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    is_transactional: bool = True,
) -> AppendResult:
    records = batch(producer_id=PID, producer_epoch=epoch, base_sequence=sequence, is_transactional=is_transactional)
    transaction = TransactionAppend(guard, v2, is_required)
    return log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, origin=origin, transaction=transaction)


def refusal(log: Log, *arguments: object, **options: object) -> ErrorCode:
    """The error of an append that leaves the log as it was."""
    end_offset = log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        append(log, *arguments, **options)  # type: ignore[arg-type]
    assert log.log_end_offset == end_offset
    return refused.value.code


def end(log: Log, *, epoch: int = 0, version: int = 0, is_commit: bool = False) -> None:
    (result,) = log.append_markers([TransactionMarker(PID, epoch, 0, is_commit, version)], leader_epoch=0, now_ms=NOW_MS)
    assert result.error_code is ErrorCode.NONE


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_a_batch_without_the_guard_is_refused(log: Log, origin: AppendOrigin) -> None:
    assert refusal(log, None, origin=origin) is ErrorCode.INVALID_TXN_STATE
    assert refusal(log, VerificationGuard(), origin=origin) is ErrorCode.INVALID_TXN_STATE

    start(log)

    assert refusal(log, None, origin=origin) is ErrorCode.INVALID_TXN_STATE
    assert refusal(log, VerificationGuard(), origin=origin) is ErrorCode.INVALID_TXN_STATE


def test_a_transactional_batch_that_shows_nothing_is_refused(log: Log) -> None:
    records = batch(producer_id=PID, producer_epoch=0, base_sequence=0, is_transactional=True)

    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)

    assert refused.value.code is ErrorCode.INVALID_TXN_STATE


def test_the_first_batch_shows_the_guard_and_the_others_need_none(log: Log) -> None:
    append(log, start(log))

    assert start(log, 1) is None
    assert append(log, None, 1).base_offset == 1
    assert log.last_stable_offset == 0


def test_without_partition_verification_nothing_is_shown(log: Log) -> None:
    assert append(log, None, is_required=False).base_offset == 0


def test_a_retry_of_an_appended_batch_is_answered_without_a_guard(log: Log) -> None:
    append(log, start(log))
    end(log)

    assert append(log, None).is_duplicate


def test_an_answer_does_not_count_for_a_later_transaction(log: Log) -> None:
    """The answer to the first question comes when the transaction was aborted and the next one has begun elsewhere."""
    late = start(log)
    end(log)
    assert refusal(log, late) is ErrorCode.INVALID_TXN_STATE

    current = start(log)

    assert current is not late
    assert refusal(log, late) is ErrorCode.INVALID_TXN_STATE
    assert append(log, current).base_offset == 1


def test_the_first_append_ends_the_guard(log: Log) -> None:
    guard = start(log)
    append(log, guard)
    end(log)

    assert refusal(log, guard, 1) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_the_transaction_before_leaves_the_guard_at_version_2(log: Log) -> None:
    """It has the epoch of the transaction that follows it, which may have asked already."""
    append(log, start(log, epoch=4, v2=True), epoch=4, v2=True)
    guard = start(log, epoch=5, v2=True)

    end(log, epoch=5, version=2)

    assert append(log, guard, epoch=5, v2=True).base_offset == 2


def test_a_repeated_marker_of_an_earlier_transaction_leaves_the_guard_at_version_2(log: Log) -> None:
    """The transaction between them was in other partitions, so that this one's epoch is higher by two."""
    append(log, start(log, epoch=4, v2=True), epoch=4, v2=True)
    end(log, epoch=5, version=2)
    guard = start(log, epoch=6, v2=True)

    end(log, epoch=5, version=2)

    assert append(log, guard, epoch=6, v2=True).base_offset == 3


def test_a_repeated_marker_of_a_lower_epoch_leaves_the_guard_at_version_1(log: Log) -> None:
    append(log, start(log, epoch=4), epoch=4)
    end(log, epoch=4)
    guard = start(log, epoch=5)

    end(log, epoch=4)

    assert append(log, guard, epoch=5).base_offset == 3


def test_a_marker_of_a_higher_epoch_ends_the_guard_at_version_2(log: Log) -> None:
    guard = start(log, epoch=5, v2=True)

    end(log, epoch=6, version=2)

    assert refusal(log, guard, epoch=6, v2=True) is ErrorCode.INVALID_TXN_STATE


def test_a_late_batch_is_of_an_old_epoch_before_it_is_anything_else(log: Log) -> None:
    """INVALID_TXN_STATE would end a Streams application (KAFKA-19690)."""
    append(log, start(log, epoch=1), epoch=1)
    end(log, epoch=2)

    assert refusal(log, None, 1, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as refused:
        start(log, 1, epoch=1)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_of_a_higher_epoch_is_not_in_the_open_transaction(log: Log) -> None:
    append(log, start(log))

    assert refusal(log, None, epoch=1) is ErrorCode.INVALID_TXN_STATE
    assert append(log, start(log, epoch=1), epoch=1).base_offset == 1
    assert log.last_stable_offset == 0, "the transaction goes on, as in Kafka, until its marker"


def test_no_batch_overtakes_one_that_waits_for_its_answer(log: Log) -> None:
    """Appended first, the later one would leave the earlier one out of order for ever."""
    append(log, start(log), 0)
    end(log)
    first, second = start(log, 1), start(log, 2)

    assert first is second
    assert refusal(log, second, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [append(log, first, 1).base_offset, append(log, second, 2).base_offset] == [2, 3]


def test_a_sequence_that_waited_in_an_older_epoch_holds_nothing_back(log: Log) -> None:
    start(log, 0, epoch=0)
    guard = start(log, 3, epoch=1)

    assert append(log, guard, 3, epoch=1).base_offset == 0


def test_an_unknown_producer_begins_with_0_at_version_2(log: Log) -> None:
    assert refusal(log, start(log, 3, v2=True), 3, v2=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, start(log, 0, v2=True), 0, v2=True).base_offset == 0


def test_an_unknown_producer_may_begin_with_any_sequence_below_version_2(log: Log) -> None:
    assert append(log, start(log, 3), 3).base_offset == 0


def test_an_idempotent_producer_may_become_transactional(log: Log) -> None:
    """Its sequences go on; what it wrote before is in no transaction."""
    append(log, None, 0, is_transactional=False)

    assert refusal(log, None, 1) is ErrorCode.INVALID_TXN_STATE
    assert append(log, start(log, 1), 1).base_offset == 1
    log.set_high_watermark(2)
    assert log.last_stable_offset == 1
    end(log)
    assert append(log, None, 2, is_transactional=False).base_offset == 3


def test_a_plain_batch_of_a_producer_is_refused_inside_its_own_transaction(log: Log) -> None:
    append(log, start(log))

    assert refusal(log, None, 1, is_transactional=False) is ErrorCode.INVALID_TXN_STATE


def test_a_question_that_is_never_answered_expires_with_the_producers(log: Log) -> None:
    guard = start(log, now_ms=NOW_MS)
    log.producers.remove_expired(NOW_MS + PRODUCER_ID_EXPIRATION_MS - 1)
    assert start(log) is guard

    log.producers.remove_expired(NOW_MS + PRODUCER_ID_EXPIRATION_MS)

    assert refusal(log, guard) is ErrorCode.INVALID_TXN_STATE
    assert start(log) is not guard


def test_what_a_leader_has_accepted_is_not_verified_again_and_ends_the_guard(log: Log) -> None:
    guard = start(log)
    records = batch(base_offset=0, producer_id=PID, producer_epoch=0, base_sequence=0, is_transactional=True)

    log.append_as_follower(records, now_ms=NOW_MS)

    assert start(log, 1) is None
    end(log)
    assert refusal(log, guard, 1) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("has_snapshot", [True, False], ids=["snapshot with the transaction", "snapshot before the transaction"])
def test_an_open_transaction_survives_a_restart(open_log: OpenLog, is_clean: bool, has_snapshot: bool) -> None:
    """With its start, which the snapshot has if it was taken later; a batch of it needs no guard then."""
    log = open_log()
    log.append_as_leader(batch(3), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    append(log, start(log))
    if has_snapshot:
        log.roll(NOW_MS)
        log.append_as_leader(batch(), leader_epoch=0, now_ms=NOW_MS)
        assert log.producers.latest_snapshot_offset == 4
    if is_clean:
        log.close()
    end_offset = log.log_end_offset

    reopened = open_log(was_clean_stop=is_clean, recovery_point=end_offset if is_clean else 0)
    reopened.set_high_watermark(end_offset)

    assert reopened.last_stable_offset == 3
    assert start(reopened, 1) is None
    append(reopened, None, 1)
    end(reopened)
    reopened.set_high_watermark(reopened.log_end_offset)
    assert [(each.first_offset, each.last_offset) for each in reopened.segments.find_aborted(0, 100)] == [(3, reopened.log_end_offset - 1)]
    assert reopened.last_stable_offset == reopened.log_end_offset


def test_a_guard_does_not_survive_a_restart(open_log: OpenLog) -> None:
    guard = start(open_log())

    reopened = open_log()

    assert refusal(reopened, guard) is ErrorCode.INVALID_TXN_STATE
