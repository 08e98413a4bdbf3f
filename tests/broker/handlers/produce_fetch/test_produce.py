"""Produce: what each kind of request is answered with, over real logs."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest

from broker.handlers.produce_fetch import produce, produce_answers
from broker.replication import batch_preparation
from protocol import codec
from protocol.compression import Compression
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.framing import keep
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records import SimpleRecord, build_batch
from storage import validation
from tests.broker.loop.turn_loop import TurnLoop
from tests.broker.replication.world import World, batch, completed, context
from tests.support.clock import WALL_START_MS
from tests.support.services import request_context
from tests.support.worker import ManualWorker

PRODUCE_KEY = 0


def request(*topics: tuple[str, list[tuple[int, memoryview | None]]], acks: int = 1, **fields: Any) -> ProduceRequest:
    data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=records) for index, records in partitions])
        for name, partitions in topics
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data, **fields)


def send(world: World, asked: ProduceRequest, *, version: int = 9) -> Any:
    facts = request_context(PRODUCE_KEY, version, now_ms=world.clock.now_ms())
    outcome = completed(produce.build(world.services())(facts, asked))
    return read_response(outcome, version)


def read_response(outcome: Any, version: int) -> Any:
    """What a client reads, where the response is a template's chunks; any other outcome as it is."""
    if not isinstance(outcome, list):
        return outcome
    frame = b"".join(outcome)
    position = 9 if version >= 9 else 8  # size, correlation id, and the tag section of flexible versions
    response, end = codec.decode(ProduceResponse, version, frame, position)
    assert end == len(frame)
    return response


def codes(response: ProduceResponse) -> list[tuple[str, int, int]]:
    return [(topic.name, each.index, each.error_code) for topic in response.responses for each in topic.partition_responses]


def test_answers_every_partition_in_the_requests_order(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", partitions=2)
    world.create_topic("b")

    response = send(world, request(("b", [(0, batch("1"))]), ("a", [(1, batch("2", "3")), (0, batch("4"))])))

    assert codes(response) == [("b", 0, 0), ("a", 1, 0), ("a", 0, 0)]
    assert response.responses[1].partition_responses[0].base_offset == 0
    assert world.partition("a", 1).log.log_end_offset == 2


@pytest.mark.parametrize("version", range(3, 13))
def test_response_can_be_encoded_in_every_version(tmp_path: Path, version: int) -> None:
    world = World(tmp_path)
    world.create_topic("a")

    response = send(world, request(("a", [(0, batch("1"))]), ("nobody", [(0, batch("2"))])), version=version)

    assert codes(codec.decode(ProduceResponse, version, codec.encode(response, version))[0]) == [("a", 0, 0), ("nobody", 0, 3)]


def test_log_append_time_is_told_for_topics_that_have_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", message_timestamp_type="LogAppendTime")
    world.create_topic("b")
    world.clock.advance(5)

    response = send(world, request(("a", [(0, batch("1"))]), ("b", [(0, batch("2"))])))

    times = [topic.partition_responses[0].log_append_time_ms for topic in response.responses]
    assert times == [WALL_START_MS + 5, -1]


@pytest.mark.parametrize("acks", [2, -2, 127])
def test_unknown_acks_are_refused_for_every_partition_and_nothing_is_appended(tmp_path: Path, acks: int) -> None:
    world = World(tmp_path)
    world.create_topic("a", partitions=2)

    response = send(world, request(("a", [(0, batch("1")), (1, batch("2"))]), acks=acks))

    assert codes(response) == [("a", 0, ErrorCode.INVALID_REQUIRED_ACKS), ("a", 1, ErrorCode.INVALID_REQUIRED_ACKS)]
    assert world.partition("a", 0).log.log_end_offset == 0


def test_partition_named_twice_is_refused_and_the_others_are_appended(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", partitions=2)

    response = send(world, request(("a", [(0, batch("1")), (1, batch("2")), (0, batch("3"))])))

    assert codes(response) == [("a", 0, ErrorCode.INVALID_REQUEST), ("a", 1, 0), ("a", 0, ErrorCode.INVALID_REQUEST)]
    assert world.partition("a", 0).log.log_end_offset == 0
    assert world.partition("a", 1).log.log_end_offset == 1


def test_acks_zero_is_not_answered(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a")

    assert send(world, request(("a", [(0, batch("1"))]), acks=0)) is None
    assert world.partition("a").log.log_end_offset == 1


def test_acks_zero_with_an_error_closes_the_connection(tmp_path: Path) -> None:
    world = World(tmp_path)

    with pytest.raises(DecodeError):
        send(world, request(("nobody", [(0, batch("1"))]), acks=0))


def test_internal_topic_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("__consumer_offsets")

    response = send(world, request(("__consumer_offsets", [(0, batch("1"))])))

    assert codes(response) == [("__consumer_offsets", 0, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert world.partition("__consumer_offsets").log.log_end_offset == 0


def test_transactional_batch_without_a_transactional_id_fails_the_request(tmp_path: Path) -> None:
    """CVE-2018-17196: the batch's own flag counts, not what the request says of it."""
    world = World(tmp_path)
    world.create_topic("a")
    records = batch("1", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)

    with pytest.raises(KafkaError) as refused:
        send(world, request(("a", [(0, records)])))

    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert world.partition("a").log.log_end_offset == 0


def test_transactional_batch_of_a_partition_outside_the_transaction_is_invalid(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a")
    records = batch("1", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)

    response = send(world, request(("a", [(0, records)]), transactional_id="t"))

    assert codes(response) == [("a", 0, ErrorCode.INVALID_TXN_STATE)]


@pytest.mark.parametrize("records", [None, memoryview(b""), memoryview(bytes(10))])
def test_partition_without_a_batch_is_an_invalid_record(tmp_path: Path, records: memoryview | None) -> None:
    world = World(tmp_path)
    world.create_topic("a")

    response = send(world, request(("a", [(0, records)])))

    assert codes(response) == [("a", 0, ErrorCode.INVALID_RECORD)]


def test_record_errors_name_the_records_that_were_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", cleanup_policy="compact")
    keyed = SimpleRecord(b"k", b"v", (), WALL_START_MS)
    keyless = SimpleRecord(None, b"v", (), WALL_START_MS)

    response = send(world, request(("a", [(0, memoryview(build_batch([keyed, keyless])))])))

    partition = response.responses[0].partition_responses[0]
    assert partition.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in partition.record_errors] == [1]
    assert partition.error_message


def test_duplicate_sequence_returns_original_offset(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a")
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    send(world, request(("a", [(0, batch("1", **fields))]), acks=-1))
    send(world, request(("a", [(0, batch("other"))]), acks=-1))

    response = send(world, request(("a", [(0, batch("1", **fields))]), acks=-1))

    partition = response.responses[0].partition_responses[0]
    assert (partition.error_code, partition.base_offset) == (0, 0)
    assert world.partition("a").log.log_end_offset == 2


def test_current_leader_is_told_from_version_10(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", replicas=(2,), leader=2, leader_epoch=5)

    response = send(world, request(("a", [(0, batch("1"))])), version=10)
    older = send(world, request(("a", [(0, batch("1"))])), version=9)

    partition = response.responses[0].partition_responses[0]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 5)
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [(2, "host2", 9092)]
    assert older.node_endpoints == []


def test_connection_that_closes_takes_its_parked_produce_away(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", replicas=(1, 2))
    handler = produce.build(world.services())

    parked = handler(context(PRODUCE_KEY, 9), request(("a", [(0, batch("1"))]), acks=-1))
    assert world.replica_manager.produce_purgatory.size == 1
    parked.abandon()  # type: ignore[union-attr]

    assert world.replica_manager.produce_purgatory.size == 0


# -- checks that take long ---------------------------------------------------------------------------------------------


class LongChecks:
    """A compacted topic `c` and a plain one `p`; batches with compressed records are checked when `worker` runs."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.world.create_topic("c", cleanup_policy="compact")
        self.world.create_topic("p")
        self.worker = ManualWorker()
        self.loop = TurnLoop()
        self.handle = produce.build(self.world.services()._replace(worker=self.worker))

    def send(self, topic: str, *keys: bytes | None, acks: int = 1) -> Any:
        records = [SimpleRecord(key, b"v", (), WALL_START_MS) for key in keys]
        data = memoryview(build_batch(records, compression=Compression.ZSTD))
        outcome = self.handle(context(PRODUCE_KEY, 9), request((topic, [(0, data)]), acks=acks))
        data[:] = bytes(len(data))  # the frame's buffer is used again at once
        return self.loop.turns.start(outcome) if isinstance(outcome, GeneratorType) else outcome

    def check(self) -> None:
        """Let the worker do all that it has, and what waits for it go on."""
        self.worker.run()
        self.loop.run()

    def code(self, outcome: Any) -> int:
        return read_response(completed(outcome), 9).responses[0].partition_responses[0].error_code

    def end_offset(self, topic: str) -> int:
        return self.world.partition(topic, 0).log.log_end_offset


def test_records_that_take_long_are_checked_off_the_loop_and_then_appended(tmp_path: Path) -> None:
    room = LongChecks(tmp_path)
    good, bad = room.send("c", b"k"), room.send("c", None)
    assert (good.is_done, room.end_offset("c")) == (False, 0)

    room.check()

    assert (room.code(good), room.code(bad), room.end_offset("c")) == (ErrorCode.NONE, ErrorCode.INVALID_RECORD, 1)


def test_a_long_check_holds_the_order_of_its_connection_and_others_pass(tmp_path: Path) -> None:
    room = LongChecks(tmp_path)
    checked = room.send("c", b"k")
    assert checked.holds_order

    other = room.send("p", b"x")
    room.check()

    assert [room.code(outcome) for outcome in (other, checked)] == [ErrorCode.NONE] * 2
    assert not checked.holds_order


def test_order_is_let_go_once_the_checked_records_are_appended_and_wait_for_acks(tmp_path: Path) -> None:
    room = LongChecks(tmp_path)
    room.world.create_topic("r", cleanup_policy="compact", replicas=(1, 2))
    outcome = room.send("r", b"k", acks=-1)

    room.check()

    assert (outcome.is_done, outcome.holds_order, room.end_offset("r")) == (False, False, 1)


def test_settings_that_change_during_the_check_count(tmp_path: Path) -> None:
    room = LongChecks(tmp_path)
    outcome = room.send("c", b"k" * 50)
    log = room.world.partition("c", 0).log
    log.update_config(replace(log.config, max_message_bytes=70))

    room.check()

    assert room.code(outcome) == ErrorCode.MESSAGE_TOO_LARGE


def test_settings_that_change_during_the_check_are_not_applied_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kilobyte can decompress to 30 MB."""
    room = LongChecks(tmp_path)
    outcome = room.send("c", b"k", b"l")
    log = room.world.partition("c", 0).log
    log.update_config(replace(log.config, message_timestamp_after_max_ms=1))
    monkeypatch.setattr(validation, "check_batch", None)

    room.check()

    assert (room.code(outcome), room.end_offset("c")) == (ErrorCode.NONE, 2)


def test_nothing_is_appended_for_a_connection_that_is_gone(tmp_path: Path) -> None:
    room = LongChecks(tmp_path)
    room.send("c", b"k").abandon()

    room.check()

    assert room.end_offset("c") == 0


def test_a_line_that_holds_too_much_turns_requests_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_preparation, "COPIED_BYTES_MAX", 100)
    room = LongChecks(tmp_path)
    first = room.send("c", b"k")

    assert room.code(room.send("c", b"k")) == ErrorCode.REQUEST_TIMED_OUT
    room.check()
    assert room.code(first) == ErrorCode.NONE


@pytest.mark.parametrize(("key", "value"), [(b"k", type(None)), (None, DecodeError)])
def test_without_acks_a_long_check_ends_in_silence_or_a_closed_connection(tmp_path: Path, key: bytes | None, value: type) -> None:
    room = LongChecks(tmp_path)
    outcome = room.send("c", key, acks=0)

    room.check()

    assert outcome.is_done
    assert isinstance(outcome.value, value)


def test_refused_records_are_told_in_the_log_with_the_reason_and_the_client(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Many producers drop what they are told. Each kind of error has its budget: none hides another."""
    world = World(tmp_path)
    world.create_topic("a", max_message_bytes="100")
    caplog.set_level(logging.INFO, "barnabas.produce")
    handle = produce.build(world.services())

    for _ in range(20):
        completed(handle(context(PRODUCE_KEY, 9), request(("nobody", [(0, batch("1"))]))))
    completed(handle(context(PRODUCE_KEY, 9), request(("a", [(0, batch("x" * 1000))]))))
    world.clock.advance(60_000)

    who = "principal=User:ANONYMOUS client=127.0.0.1 client_id=client"
    first, *_, large, left_out = caplog.messages
    assert first.startswith("produce refused topic=nobody partition=0 error=UNKNOWN_TOPIC_OR_PARTITION") and first.endswith(who)
    assert large.startswith("produce refused topic=a partition=0 error=MESSAGE_TOO_LARGE") and large.endswith(who)
    assert left_out == "produce refused with UNKNOWN_TOPIC_OR_PARTITION: 10 more lines were left out in the last 60 s"
    assert len(caplog.messages) == 12


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"producer_id": 7, "producer_epoch": 1, "base_sequence": 9}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ({"producer_id": 7, "producer_epoch": 0, "base_sequence": 1}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"is_control": True}, ErrorCode.INVALID_RECORD),
        ({"timestamp": 1}, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_log_start_offset_is_told_beside_what_is_wrong_with_the_records(tmp_path: Path, fields: dict[str, Any], error: ErrorCode) -> None:
    world = World(tmp_path)
    world.create_topic("a", message_timestamp_before_max_ms="1000")
    send(world, request(("a", [(0, batch("0", producer_id=7, producer_epoch=1, base_sequence=0))])))

    response = send(world, request(("a", [(0, batch("1", **fields))])))

    partition = response.responses[0].partition_responses[0]
    assert (partition.error_code, partition.base_offset, partition.log_start_offset) == (error, -1, 0)


def test_a_request_that_fails_as_a_whole_is_an_error_of_every_partition() -> None:
    asked = request(("a", [(0, batch("1")), (1, batch("1"))]))

    response = produce.error_response(asked, KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))

    assert codes(response) == [
        ("a", 0, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("a", 1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ]


# -- requests of many partitions ---------------------------------------------------------------------------------------

MANY = 2 * produce.PARTITIONS_AT_ONCE


def in_turns(world: World, asked: ProduceRequest, *, version: int = 9) -> Any:
    """The work of a long request, which has not begun."""
    outcome = produce.build(world.services())(context(PRODUCE_KEY, version), asked)
    assert isinstance(outcome, GeneratorType), "the request is not a long one"
    return outcome


def finish(work: Any) -> Any:
    while True:
        try:
            assert next(work) is None
        except StopIteration as end:
            return end.value


def test_many_partitions_are_appended_in_turns_each_batch_whole(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", partitions=MANY)
    work = in_turns(world, request(("a", [(index, keep(batch("1", "2"))) for index in range(MANY)])))
    ends: list[int] = []
    while len(ends) < 2 or ends[-1] == 0:
        next(work)
        ends.append(sum(partition.log.log_end_offset for partition in world.replica_manager.partitions()))

    response = finish(work)

    assert 0 < ends[-1] < 2 * MANY
    assert codes(response) == [("a", index, 0) for index in range(MANY)]
    assert {partition.log.log_end_offset for partition in world.replica_manager.partitions()} == {2}


def test_several_partitions_with_much_in_them_go_in_turns_and_one_does_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", partitions=2, max_message_bytes=str(4 * produce.BYTES_AT_ONCE))
    large = "x" * (produce.BYTES_AT_ONCE // 2)

    alone = send(world, request(("a", [(0, keep(batch(large, large)))])))
    both = finish(in_turns(world, request(("a", [(0, keep(batch(large))), (1, keep(batch(large)))]))))

    assert codes(alone) == [("a", 0, 0)]
    assert codes(both) == [("a", 0, 0), ("a", 1, 0)]


def test_leadership_that_moves_between_two_turns_counts(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", partitions=MANY, replicas=(1, 2))
    work = in_turns(world, request(("a", [(index, keep(batch("1"))) for index in range(MANY)])))
    while not world.partition("a", 0).log.log_end_offset:
        next(work)

    world.change_partition("a", MANY - 1, leader=2)
    response = finish(work)

    assert codes(response)[0] == ("a", 0, ErrorCode.NONE)
    assert codes(response)[-1] == ("a", MANY - 1, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_many_partitions_that_wait_for_acks_are_answered_in_their_order(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", partitions=MANY, replicas=(1, 2))
    parked = finish(in_turns(world, request(("a", [(index, keep(batch("1"))) for index in range(MANY)]), acks=-1)))
    assert not parked.is_done

    for index in range(MANY):
        world.follower_fetch(2, "a", 1, index=index)

    assert codes(parked.take()) == [("a", index, 0) for index in range(MANY)]


def test_many_partitions_with_records_to_check_are_appended_after_the_check(tmp_path: Path) -> None:
    room = LongChecks(tmp_path)
    room.world.replica_manager.end_loading()
    room.world.create_topic("m", partitions=MANY, cleanup_policy="compact")
    for _ in range(MANY):
        room.world.clock.advance(0)  # new partitions are made a few at a time
    records = build_batch([SimpleRecord(b"k", b"v", (), WALL_START_MS)], compression=Compression.ZSTD)
    loop = TurnLoop()
    partitions = [(index, keep(memoryview(bytearray(records)))) for index in range(MANY)]
    answer = loop.turns.start(room.handle(context(PRODUCE_KEY, 9), request(("m", partitions))))  # type: ignore[arg-type]
    loop.run()
    assert (answer.is_done, room.world.partition("m", 0).log.log_end_offset) == (False, 0)

    room.check()
    loop.run()

    assert codes(answer.take()) == [("m", index, 0) for index in range(MANY)]


def test_records_named_in_one_answer_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kilobyte of zstd holds a thousand refused records, each named with a reason: the answer would dwarf its request."""
    monkeypatch.setattr(produce_answers, "RECORD_ERRORS_PER_ANSWER", 3)
    world = World(tmp_path)
    world.create_topic("a", partitions=3, cleanup_policy="compact")

    response = send(world, request(("a", [(index, batch("no key", "no key")) for index in range(3)])))

    partitions = response.responses[0].partition_responses
    assert [len(partition.record_errors) for partition in partitions] == [2, 1, 0]
    assert {partition.error_code for partition in partitions} == {ErrorCode.INVALID_RECORD}
    assert all(partition.error_message for partition in partitions)
