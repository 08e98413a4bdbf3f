"""Produce with transactional batches, over real logs: when the transaction's coordinator is asked, and what its answer does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.produce_fetch import transactional_produce
from broker.handlers.produce_fetch.produce import ProduceHandler
from broker.loop.deferred import Deferred
from broker.transactions.partition_additions import AdditionSettings, PartitionAdditions, Question, SupportedOperation
from broker.transactions.transaction import ProducerIdAndEpoch
from protocol.compression import Compression
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.framing import SmallFrameBuffer
from protocol.messages.produce import ProduceRequest
from protocol.records import SimpleRecord, build_batch
from storage.markers import TransactionMarker
from tests.broker.handlers.produce_fetch.test_produce import codes, read_response, request
from tests.broker.loop.turn_loop import TurnLoop
from tests.broker.replication.world import World, batch
from tests.support.clock import WALL_START_MS
from tests.support.doubles import stands_for
from tests.support.services import request_context
from tests.support.worker import ManualWorker

BACKOFF_MS, BACKOFF_MAX_MS = 20, 100


@stands_for(PartitionAdditions, own=("answer", "is_verification_enabled"))
class HeldAdditions:
    """Answers when a test says so. `asked` has the questions in their order."""

    def __init__(self) -> None:
        self.settings = AdditionSettings(BACKOFF_MS, BACKOFF_MAX_MS)
        self.asked: list[Question] = []
        self.answers: list[Deferred] = []
        self.pauses: list[Deferred] = []
        self.is_enabled = True
        self.refusals_at_once: list[dict[tuple[str, int], ErrorCode]] = []
        """The answers to the next questions that are answered at once."""

    def is_verification_enabled(self) -> bool:
        return self.is_enabled

    def ask(self, question: Question) -> Deferred:
        self.asked.append(question)
        self.answers.append(Deferred())
        if self.refusals_at_once:
            self.answers[-1].complete(self.refusals_at_once.pop(0))
        return self.answers[-1]

    def pause(self) -> Deferred:
        self.pauses.append(Deferred())
        return self.pauses[-1]

    def answer(self, **refused: ErrorCode) -> None:
        """Complete the latest question; `a_0` names a partition."""
        self.answers[-1].complete({(name[:-2], int(name[-1])): code for name, code in refused.items()})


class Produces:
    """The handler with its additions, and a loop. Topic `a` has two partitions."""

    def __init__(self, directory: Path, **topic: Any) -> None:
        self.world = World(directory)
        self.world.create_topic("a", partitions=2, **topic)
        self.additions = HeldAdditions()
        self.worker = ManualWorker()
        self.loop = TurnLoop()
        self.handler = ProduceHandler(self.world.services()._replace(worker=self.worker), self.additions)  # type: ignore[arg-type]

    def start(self, asked: ProduceRequest, *, version: int = 12) -> Any:
        """The answer, or the Deferred of a request that waits."""
        outcome = self.handler.handle(request_context(0, version, now_ms=self.world.clock.now_ms()), asked)
        if hasattr(outcome, "send"):
            outcome = self.loop.turns.start(outcome)
            self.loop.run()
            if outcome.is_done:
                outcome = outcome.take()
        return outcome if isinstance(outcome, Deferred) else read_response(outcome, version)

    def finish(self, waiting: Deferred, *, version: int = 12) -> Any:
        self.loop.run()
        return read_response(waiting.take(), version)

    def end_offset(self, index: int = 0) -> int:
        return self.world.partition("a", index).log.log_end_offset

    def write_marker(self, index: int = 0, *, epoch: int = 0) -> None:
        """A commit at transaction version 0."""
        marker = TransactionMarker(7, epoch, 0, is_commit=True)
        self.world.partition("a", index).log.append_markers([marker], leader_epoch=0, now_ms=0)


def transactional(*values: str, **fields: Any) -> memoryview:
    return batch(*values, **({"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True} | fields))


def compressed(producer_id: int = 7) -> memoryview:
    """A transactional batch that a compacted topic has a worker check."""
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    return memoryview(build_batch([SimpleRecord(b"k", b"v", (), WALL_START_MS)], compression=Compression.ZSTD, **fields))


def to_partition(*partitions: tuple[int, memoryview], **fields: Any) -> ProduceRequest:
    return request(("a", list(partitions)), **({"acks": -1, "transactional_id": "t"} | fields))


def test_the_first_batch_is_appended_at_once_if_the_coordinator_answers_at_once(tmp_path: Path) -> None:
    produces = Produces(tmp_path)
    produces.additions.refusals_at_once = [{}]

    answer = produces.start(to_partition((0, transactional("v"))))

    assert (codes(answer), produces.end_offset(), len(produces.additions.asked)) == ([("a", 0, 0)], 1, 1)


def test_a_refusal_at_once_is_judged_as_a_later_one(tmp_path: Path) -> None:
    produces = Produces(tmp_path)
    produces.additions.refusals_at_once = [{("a", 0): ErrorCode.CONCURRENT_TRANSACTIONS}, {("a", 0): ErrorCode.INVALID_TXN_STATE}]

    waiting = produces.start(to_partition((0, transactional("v"))))
    produces.additions.pauses[-1].complete(None)

    assert codes(produces.finish(waiting)) == [("a", 0, ErrorCode.INVALID_TXN_STATE)]
    assert (produces.end_offset(), len(produces.additions.asked)) == (0, 2)


def test_the_first_batch_waits_for_the_coordinator_and_the_next_one_asks_nobody(tmp_path: Path) -> None:
    produces = Produces(tmp_path)

    waiting = produces.start(to_partition((0, transactional("1"))))
    assert waiting.holds_order and produces.end_offset() == 0
    produces.additions.answer()

    assert codes(produces.finish(waiting)) == [("a", 0, 0)]
    assert codes(produces.start(to_partition((0, transactional("2", base_sequence=1))))) == [("a", 0, 0)]
    assert produces.end_offset() == 2
    assert produces.additions.asked == [Question("t", ProducerIdAndEpoch(7, 0), {"a": {0}}, SupportedOperation.ADD_PARTITION, 1000)]


@pytest.mark.parametrize(
    ("version", "operation"),
    [
        (10, SupportedOperation.DEFAULT_ERROR),
        (11, SupportedOperation.GENERIC_ERROR_SUPPORTED),
        (12, SupportedOperation.ADD_PARTITION),
    ],
)
def test_the_version_decides_what_the_coordinator_is_asked(tmp_path: Path, version: int, operation: SupportedOperation) -> None:
    produces = Produces(tmp_path)

    produces.start(to_partition((0, transactional("1"))), version=version)

    assert [each.operation for each in produces.additions.asked] == [operation]


def test_partitions_are_asked_for_together_and_a_refused_one_does_not_hold_the_others(tmp_path: Path) -> None:
    produces = Produces(tmp_path)

    waiting = produces.start(to_partition((0, transactional("1")), (1, transactional("2"))))
    produces.additions.answer(a_1=ErrorCode.TRANSACTION_ABORTABLE)

    assert codes(produces.finish(waiting)) == [("a", 0, 0), ("a", 1, ErrorCode.TRANSACTION_ABORTABLE)]
    assert [each.partitions for each in produces.additions.asked] == [{"a": {0, 1}}]
    assert (produces.end_offset(0), produces.end_offset(1)) == (1, 0)


def test_a_partition_whose_transaction_is_open_is_not_asked_for(tmp_path: Path) -> None:
    produces = Produces(tmp_path)
    waiting = produces.start(to_partition((0, transactional("1"))))
    produces.additions.answer()
    produces.finish(waiting)

    waiting = produces.start(to_partition((0, transactional("2", base_sequence=1)), (1, transactional("3"))))
    produces.additions.answer()

    assert codes(produces.finish(waiting)) == [("a", 0, 0), ("a", 1, 0)]
    assert [each.partitions for each in produces.additions.asked] == [{"a": {0}}, {"a": {1}}]


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ],
)
def test_an_error_that_producers_do_not_retry_is_not_enough_replicas(tmp_path: Path, error: ErrorCode, version: int) -> None:
    produces = Produces(tmp_path)

    waiting = produces.start(to_partition((0, transactional("1"))), version=version)
    produces.additions.answer(a_0=error)

    answer = produces.finish(waiting, version=version).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert error.name in answer.error_message


def test_concurrent_transactions_is_not_enough_replicas_for_a_client_that_does_not_know_it(tmp_path: Path) -> None:
    produces = Produces(tmp_path)

    waiting = produces.start(to_partition((0, transactional("1"))), version=11)
    produces.additions.answer(a_0=ErrorCode.CONCURRENT_TRANSACTIONS)

    assert codes(produces.finish(waiting, version=11)) == [("a", 0, ErrorCode.NOT_ENOUGH_REPLICAS)]


def test_concurrent_transactions_is_asked_again_after_a_pause(tmp_path: Path) -> None:
    produces = Produces(tmp_path)

    waiting = produces.start(to_partition((0, transactional("1"))))
    produces.additions.answer(a_0=ErrorCode.CONCURRENT_TRANSACTIONS)
    produces.loop.run()
    produces.world.clock.advance(BACKOFF_MS)
    produces.additions.pauses[-1].complete(None)
    produces.loop.run()
    produces.additions.answer()

    assert codes(produces.finish(waiting)) == [("a", 0, 0)]
    assert [each.timeout_ms for each in produces.additions.asked] == [1000, 1000 - BACKOFF_MS]


def test_concurrent_transactions_is_answered_when_the_time_for_more_questions_is_over(tmp_path: Path) -> None:
    produces = Produces(tmp_path)

    waiting = produces.start(to_partition((0, transactional("1"))))
    produces.world.clock.advance(BACKOFF_MAX_MS)
    produces.additions.answer(a_0=ErrorCode.CONCURRENT_TRANSACTIONS)

    assert codes(produces.finish(waiting)) == [("a", 0, ErrorCode.CONCURRENT_TRANSACTIONS)]
    assert not produces.additions.pauses


def test_a_marker_of_an_old_client_between_question_and_answer_makes_the_answer_worthless(tmp_path: Path) -> None:
    produces = Produces(tmp_path)

    waiting = produces.start(to_partition((0, transactional("1"))), version=11)
    produces.write_marker()
    produces.additions.answer()

    assert codes(produces.finish(waiting, version=11)) == [("a", 0, ErrorCode.INVALID_TXN_STATE)]


def test_an_old_epoch_is_told_before_anyone_is_asked(tmp_path: Path) -> None:
    produces = Produces(tmp_path)
    produces.write_marker(epoch=3)

    response = produces.start(to_partition((0, transactional("1", producer_epoch=2))))

    assert codes(response) == [("a", 0, ErrorCode.INVALID_PRODUCER_EPOCH)]
    assert not produces.additions.asked


def test_the_next_batch_in_flight_is_not_out_of_order_after_a_refused_verification(tmp_path: Path) -> None:
    produces = Produces(tmp_path)
    waiting = produces.start(to_partition((0, transactional("1"))), version=11)
    produces.additions.answer()
    produces.finish(waiting, version=11)
    produces.write_marker()

    first = produces.start(to_partition((0, transactional("2", base_sequence=1))), version=11)
    produces.additions.answer(a_0=ErrorCode.NETWORK_EXCEPTION)
    produces.finish(first, version=11)
    second = produces.start(to_partition((0, transactional("3", base_sequence=2))), version=11)
    produces.additions.answer()

    assert codes(produces.finish(second, version=11)) == [("a", 0, ErrorCode.NOT_ENOUGH_REPLICAS)]
    assert produces.end_offset() == 2


@pytest.mark.parametrize("before", [None, 0])
def test_nor_is_it_in_the_first_epoch_or_a_new_one(tmp_path: Path, before: int | None) -> None:
    """At transaction version 2 each transaction has an epoch of its own, which begins with sequence 0."""
    produces = Produces(tmp_path)
    if before is not None:
        produces.write_marker(epoch=before)

    first = produces.start(to_partition((0, transactional("1", producer_epoch=1))))
    produces.additions.answer(a_0=ErrorCode.NOT_COORDINATOR)
    produces.finish(first)
    second = produces.start(to_partition((0, transactional("2", producer_epoch=1, base_sequence=1))))
    produces.additions.answer()

    assert codes(produces.finish(second)) == [("a", 0, ErrorCode.NOT_ENOUGH_REPLICAS)]
    again = produces.start(to_partition((0, transactional("1", producer_epoch=1))))
    produces.additions.answer()
    assert codes(produces.finish(again)) == [("a", 0, 0)]


@pytest.mark.parametrize("other", [{"producer_id": 8}, {"producer_epoch": 1}])
def test_two_producers_in_a_request_are_refused(tmp_path: Path, other: dict[str, int]) -> None:
    produces = Produces(tmp_path)

    with pytest.raises(KafkaError) as refusal:
        produces.start(to_partition((0, transactional("1")), (1, transactional("2", **other))))

    assert refusal.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert not produces.additions.asked


def test_plain_batches_of_a_transactional_request_ask_nobody(tmp_path: Path) -> None:
    produces = Produces(tmp_path)

    response = produces.start(to_partition((0, batch("1"))))

    assert codes(response) == [("a", 0, 0)]
    assert not produces.additions.asked


def test_without_verification_only_clients_that_add_are_asked_for(tmp_path: Path) -> None:
    produces = Produces(tmp_path)
    produces.additions.is_enabled = False

    old = produces.start(to_partition((0, transactional("1"))), version=11)
    new = produces.start(to_partition((1, transactional("1"))), version=12)

    assert codes(old) == [("a", 0, 0)]
    assert isinstance(new, Deferred)
    assert [each.partitions for each in produces.additions.asked] == [{"a": {1}}]


def test_records_of_a_waiting_request_are_copied_out_of_the_receive_buffer(tmp_path: Path) -> None:
    produces = Produces(tmp_path)
    received = transactional("1")

    waiting = produces.start(to_partition((0, received)))
    received[:] = bytes(len(received))
    produces.additions.answer()

    assert codes(produces.finish(waiting)) == [("a", 0, 0)]


def test_more_copies_than_the_limit_are_turned_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_produce, "COPIED_BYTES_MAX", 100)
    produces = Produces(tmp_path)
    first = produces.start(to_partition((0, transactional("1"))))

    second = produces.start(to_partition((0, transactional("1", producer_id=8))))
    produces.additions.answer()

    assert codes(second) == [("a", 0, ErrorCode.NOT_ENOUGH_REPLICAS)]
    assert codes(produces.finish(first)) == [("a", 0, 0)]
    assert isinstance(produces.start(to_partition((0, transactional("1", producer_id=8)))), Deferred)


def test_a_frame_of_its_own_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_produce, "COPIED_BYTES_MAX", 100)
    produces = Produces(tmp_path)

    for producer_id in (7, 8):
        records = memoryview(SmallFrameBuffer(transactional("1", producer_id=producer_id)))
        assert isinstance(produces.start(to_partition((0, records))), Deferred)

    assert len(produces.additions.asked) == 2


def test_a_closed_connection_abandons_the_question_and_appends_nothing(tmp_path: Path) -> None:
    produces = Produces(tmp_path)

    waiting = produces.start(to_partition((0, transactional("1"))))
    waiting.abandon()
    produces.additions.answer()
    produces.loop.run()

    assert produces.additions.answers[0].is_abandoned
    assert produces.end_offset() == 0
    assert not len(produces.loop.turns)


def test_acks_zero_waits_too_and_a_refusal_closes_the_connection(tmp_path: Path) -> None:
    produces = Produces(tmp_path)

    waiting = produces.start(to_partition((0, transactional("1")), acks=0))
    produces.additions.answer()
    assert produces.finish(waiting) is None
    refused = produces.start(to_partition((1, transactional("1")), acks=0))
    produces.additions.answer(a_1=ErrorCode.TRANSACTION_ABORTABLE)

    with pytest.raises(DecodeError):
        produces.finish(refused)
    assert (produces.end_offset(0), produces.end_offset(1)) == (1, 0)


def test_a_batch_whose_header_cannot_be_read_is_left_to_the_append(tmp_path: Path) -> None:
    produces = Produces(tmp_path)

    response = produces.start(to_partition((0, transactional("1")[:40])))

    assert codes(response) == [("a", 0, ErrorCode.INVALID_RECORD)]


def test_a_partition_that_is_not_led_here_asks_nobody(tmp_path: Path) -> None:
    produces = Produces(tmp_path)

    response = produces.start(request(("nobody", [(0, transactional("1"))]), acks=-1, transactional_id="t"))

    assert codes(response) == [("nobody", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert not produces.additions.asked


def test_long_requests_are_verified_as_a_whole(tmp_path: Path) -> None:
    """More partitions than are appended at once."""
    produces = Produces(tmp_path)
    produces.world.create_topic("many", partitions=100)

    records = [(index, memoryview(SmallFrameBuffer(transactional("1")))) for index in range(100)]
    waiting = produces.start(request(("many", records), acks=-1, transactional_id="t"))
    produces.additions.answer()

    assert {code for _, _, code in codes(produces.finish(waiting))} == {0}
    assert [len(each.partitions["many"]) for each in produces.additions.asked] == [100]


def test_records_that_take_long_to_check_are_checked_after_the_question(tmp_path: Path) -> None:
    """A worker's time is not spent on what the coordinator refuses."""
    produces = Produces(tmp_path, cleanup_policy="compact")

    waiting = produces.start(to_partition((0, compressed())))
    produces.worker.run()
    produces.additions.answer()
    produces.loop.run()
    assert not waiting.is_done
    produces.worker.run()

    assert codes(produces.finish(waiting)) == [("a", 0, 0)]
    assert produces.end_offset() == 1


@pytest.mark.parametrize("is_closed", [False, True])
def test_copies_count_until_their_records_are_checked_or_the_connection_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    monkeypatch.setattr(transactional_produce, "COPIED_BYTES_MAX", 100)
    produces = Produces(tmp_path, cleanup_policy="compact")
    waiting = produces.start(to_partition((0, compressed())))
    produces.additions.answer()
    produces.loop.run()

    refused = produces.start(to_partition((0, compressed(8))))
    if is_closed:
        waiting.abandon()
    else:
        produces.worker.run()
        produces.finish(waiting)

    assert codes(refused) == [("a", 0, ErrorCode.NOT_ENOUGH_REPLICAS)]
    assert isinstance(produces.start(to_partition((0, compressed(9)))), Deferred)


def test_a_batch_into_an_open_transaction_is_answered_without_a_turn(tmp_path: Path) -> None:
    produces = Produces(tmp_path)
    waiting = produces.start(to_partition((0, transactional("1"))))
    produces.additions.answer()
    produces.finish(waiting)

    facts = request_context(0, 12, now_ms=produces.world.clock.now_ms())
    response = produces.handler.handle(facts, to_partition((0, transactional("2", base_sequence=1))))

    assert codes(read_response(response, 12)) == [("a", 0, 0)]
