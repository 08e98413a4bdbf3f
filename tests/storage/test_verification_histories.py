"""Histories of verifications whose answers come late: no batch is appended on an answer that an earlier marker or append has used up."""

from __future__ import annotations

import random

import pytest

from protocol.errors import ErrorCode, KafkaError
from storage.log import Log
from storage.markers import TransactionMarker
from storage.verification import TransactionAppend, VerificationGuard, VerificationState
from tests.storage.conftest import NOW_MS, OpenLog, batch

PID = 7


class Question:
    """A batch that waits for the coordinator's answer. `ends` counts the markers before it."""

    def __init__(self, guard: VerificationGuard | None, epoch: int, ends: int) -> None:
        self.guard = guard
        self.epoch = epoch
        self.ends = ends


class Producer:
    """One producer at transaction version 2, whose batches, answers and markers reach the log in any order.

    It raises its epoch with each transaction's end. `late_appends` are batches that came into the log although their transaction's marker
    was there: what must never be."""

    def __init__(self, log: Log, random_source: random.Random) -> None:
        self.log = log
        self.random = random_source
        self.epoch = 0
        self.waiting: list[Question] = []
        self.marked_epoch = -1  # the transactions of epochs below this one have their markers
        self.appended_count = 0
        self.late_appends: list[tuple[int, int]] = []
        self.refusals: set[ErrorCode] = set()

    def next_sequence(self) -> int:
        entry = self.log.producers.producers.get(PID)
        return 0 if entry is None else entry.last_sequence + 1

    def ask(self) -> None:
        """A batch of this transaction, or of one before it that was long under way, comes and is asked about."""
        epoch = max(self.epoch - self.random.choice([0, 0, 0, 1]), 0)
        try:
            guard = self.log.start_verification(PID, epoch, 0, supports_epoch_bump=True, now_ms=NOW_MS)
        except KafkaError as error:
            self.refusals.add(error.code)
            return
        self.waiting.append(Question(guard, epoch, self.marked_epoch))

    def answer(self) -> None:
        """The coordinator has said yes, perhaps long ago."""
        if not self.waiting:
            return
        question = self.waiting.pop(self.random.randrange(len(self.waiting)))
        entry = self.log.producers.producers.get(PID)
        sequence = 0 if entry is None or entry.producer_epoch != question.epoch else entry.last_sequence + 1
        records = batch(size=5, producer_id=PID, producer_epoch=question.epoch, base_sequence=sequence, is_transactional=True)
        try:
            self.log.append_as_leader(
                records, leader_epoch=0, now_ms=NOW_MS, transaction=TransactionAppend(question.guard, supports_epoch_bump=True)
            )
        except KafkaError as error:
            self.refusals.add(error.code)
            return
        self.appended_count += 1
        if question.epoch < self.marked_epoch:
            self.late_appends.append((question.epoch, self.marked_epoch))

    def end(self) -> None:
        """The transaction ends; its marker comes, with the epoch of the next one."""
        self.epoch += 1
        (result,) = self.log.append_markers([TransactionMarker(PID, self.epoch, 0, False, 2)], leader_epoch=0, now_ms=NOW_MS)
        assert result.error_code is ErrorCode.NONE
        self.marked_epoch = self.epoch

    def step(self) -> None:
        self.random.choice([self.ask] * 4 + [self.answer] * 4 + [self.end])()


@pytest.mark.parametrize("seed", range(8))
def test_no_batch_is_appended_behind_the_marker_of_its_transaction(open_log: OpenLog, seed: int) -> None:
    producer = Producer(open_log(), random.Random(seed))

    for _ in range(600):
        producer.step()

    assert producer.late_appends == []
    assert producer.appended_count > 50
    assert ErrorCode.INVALID_PRODUCER_EPOCH in producer.refusals


class OldProducer(Producer):
    """At version 1 all transactions have one epoch: only the guard tells a late batch."""

    def ask(self) -> None:
        guard = self.log.start_verification(PID, 0, self.next_sequence(), supports_epoch_bump=False, now_ms=NOW_MS)
        self.waiting.append(Question(guard, 0, self.marked_epoch))

    def answer(self) -> None:
        """Of a question that was asked when the transaction was not open."""
        asked = [question for question in self.waiting if question.guard is not None]
        if not asked:
            return
        question = self.random.choice(asked)
        self.waiting.remove(question)
        is_open = self.log.producers.first_unstable_offset is not None
        records = batch(size=5, producer_id=PID, producer_epoch=0, base_sequence=self.next_sequence(), is_transactional=True)
        try:
            self.log.append_as_leader(
                records, leader_epoch=0, now_ms=NOW_MS, transaction=TransactionAppend(question.guard, supports_epoch_bump=False)
            )
        except KafkaError:
            return
        self.appended_count += 1
        self.log.set_high_watermark(self.log.log_end_offset)
        if question.ends < self.marked_epoch and not is_open:
            self.late_appends.append((question.ends, self.marked_epoch))

    def end(self) -> None:
        self.marked_epoch += 1
        self.log.append_markers([TransactionMarker(PID, 0, 0, False, 1)], leader_epoch=0, now_ms=NOW_MS)
        self.log.set_high_watermark(self.log.log_end_offset)


@pytest.mark.parametrize("seed", range(8))
def test_no_transaction_begins_with_an_answer_of_before_its_last_marker(open_log: OpenLog, seed: int) -> None:
    producer = OldProducer(open_log(), random.Random(seed))

    for _ in range(600):
        producer.step()

    assert producer.late_appends == []
    assert producer.appended_count > 50


def test_a_guard_that_markers_leave_is_found_out(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The history tests see what they are there for."""
    monkeypatch.setattr(VerificationState, "is_ended_by", lambda state, producer_epoch, *, is_marker: not is_marker)
    producer = OldProducer(open_log(), random.Random(1))

    for _ in range(600):
        producer.step()

    assert producer.late_appends != []
