"""The runtime's promises, shown with a coordinator of totals: order, what is seen before the commit, loading, resigning, failing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.coordination.coordinator_log import LogChunks
from broker.coordination.records import CoordinatorRecord, CoordinatorResult
from broker.coordination.shard import ShardState
from broker.loop.deferred import Deferred
from protocol.errors import ErrorCode, KafkaError
from protocol.records import ControlRecordType, SimpleRecord, build_batch, build_control_batch, encode_end_transaction_value
from tests.broker.coordination.memory_log import MemoryLog
from tests.broker.coordination.room import TOTALS, WRITE_TIMEOUT_MS, Room, TotalKey, Totals, TotalValue

OK = ErrorCode.NONE
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


# Writing.


def test_append_that_is_its_own_commit_is_answered_and_seen_at_once():
    room = Room()

    room.add("a", 2)
    room.add("a", 3)

    assert room.answers == [("a+2", OK), ("a+3", OK)]
    assert room.machine.committed() == room.machine.totals == {"a": 5}
    assert not room.shard.has_writes


def test_operation_computes_on_what_is_appended_and_not_committed():
    room = Room()
    room.log.is_holding = True

    room.add("a", 2)
    room.add("a", 3)

    assert room.machine.totals == {"a": 5}
    assert room.answers == []


def test_readers_of_the_committed_see_each_write_when_it_is_committed():
    room = Room()
    room.add("a", 1)
    room.log.is_holding = True
    room.add("a", 2)
    room.add("b", 1)
    room.add("a", -3)
    seen = [room.machine.committed()]

    for tell in room.log.held:
        tell(OK)
        seen.append(room.machine.committed())

    assert seen == [{"a": 1}, {"a": 3}, {"a": 3, "b": 1}, {"b": 1}]
    assert room.machine.totals == {"b": 1}


def test_answers_leave_in_the_order_of_the_log_whatever_the_order_of_the_commits():
    room = Room()
    room.log.is_holding = True
    room.add("a", 1)
    room.add("a", 2)
    first, second = room.log.held

    second(OK)
    assert (room.answers, room.machine.committed()) == ([], {})
    first(OK)

    assert room.answers == [("a+1", OK), ("a+2", OK)]
    assert room.machine.committed() == {"a": 3}


def test_soft_state_follows_the_replay_before_the_commit():
    room = Room()
    room.log.is_holding = True
    seen: list[tuple[dict[str, int], dict[str, int]]] = []

    def look() -> None:
        seen.append((dict(room.machine.totals), room.machine.committed()))

    room.shard.write(CoordinatorResult([room.machine.add("a", 2)], lambda error: None, look))

    assert seen == [({"a": 2}, {})]


def test_refused_append_changes_nothing():
    room = Room()
    room.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS

    room.add("a", 2)

    assert room.answers == [("a+2", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert room.machine.totals == {}


def test_append_that_is_refused_while_others_wait_leaves_them_alone():
    room = Room()
    room.log.is_holding = True
    room.add("a", 2)
    room.log.fail_with = ErrorCode.MESSAGE_TOO_LARGE

    room.add("a", 3)
    room.log.commit()

    assert room.answers == [("a+3", ErrorCode.UNKNOWN_SERVER_ERROR), ("a+2", OK)]
    assert room.machine.totals == {"a": 2}


def test_result_without_records_waits_for_what_was_written_before_and_for_nothing_later():
    room = Room()
    room.log.is_holding = True
    room.add("a", 1)
    room.wait("read")
    room.add("a", 2)

    room.log.held[0](OK)

    assert room.answers == [("a+1", OK), ("read", OK)]


def test_result_without_records_is_told_at_once_when_all_is_committed():
    room = Room()

    room.wait("read")

    assert room.answers == [("read", OK)]


def test_client_that_waits_too_long_is_told_so_and_its_records_count_when_they_are_committed():
    room = Room()
    room.log.is_holding = True
    room.add("a", 2)
    room.wait("read")

    room.clock.advance(WRITE_TIMEOUT_MS)
    told = list(room.answers)
    room.log.commit()

    assert told == [("a+2", ErrorCode.COORDINATOR_NOT_AVAILABLE), ("read", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert room.answers == told
    assert room.machine.committed() == {"a": 2}


def test_answer_that_fails_does_not_keep_the_others_waiting():
    room = Room()
    room.log.is_holding = True
    room.add("a", 1)
    room.add("b", 1, label="second")
    room.answers = _Refusing(room.answers, "a+1")

    room.log.commit()

    assert list(room.answers) == [("second", OK)]


class _Refusing(list):  # type: ignore[type-arg]
    def __init__(self, answers: list, refused: str) -> None:  # type: ignore[type-arg]
        super().__init__(answers)
        self.refused = refused

    def append(self, answer: tuple[str, ErrorCode]) -> None:
        if answer[0] == self.refused:
            raise ValueError("the answer cannot be encoded")
        super().append(answer)


# The end of a shard.


def test_leadership_lost_before_the_commit_drops_the_state_and_answers_who_waits():
    room = Room()
    room.add("a", 1)
    room.log.is_holding = True
    room.add("a", 2)
    machine = room.machine

    room.runtime.on_resigned(0)

    assert room.answers == [("a+1", OK), ("a+2", NOT_COORDINATOR)]
    assert room.refusal() is NOT_COORDINATOR
    assert machine.is_unloaded
    room.log.commit()  # which comes too late
    assert len(room.answers) == 2


def test_uncommitted_records_that_the_next_leader_cut_off_are_gone_after_the_next_election():
    room = Room()
    room.add("a", 1)
    room.log.is_holding = True
    room.add("a", 2)
    room.runtime.on_resigned(0)
    del room.log.batches[1:]

    room.runtime.on_elected(0, 2)
    room.clock.advance(0)

    assert room.machine.totals == {"a": 1}


def test_lost_write_drops_the_state_and_the_log_tells_what_holds():
    """The log says that it cannot know: what was computed on the lost records must not stay in memory."""
    room = Room()
    room.add("a", 1)
    room.log.is_holding = True
    room.add("a", 2)
    room.add("a", 4)
    lost, _ = room.log.held
    del room.log.batches[1:]

    lost(ErrorCode.KAFKA_STORAGE_ERROR)
    assert room.answers[1:] == [("a+2", NOT_COORDINATOR), ("a+4", NOT_COORDINATOR)]
    assert room.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    room.clock.advance(0)

    assert room.machine.totals == {"a": 1}


def test_record_that_cannot_be_replayed_after_its_append_drops_the_state():
    room = Room()
    room.add("a", 1)
    room.machine.refuses_to_replay = 3

    room.add("a", 2)
    room.clock.advance(0)

    assert room.answers[1:] == [("a+2", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert room.machine.totals == {"a": 3}  # the next machine has no such bug


def test_timers_end_with_the_shard():
    room = Room()
    fired: list[int] = []
    room.schedule(10, lambda: fired.append(room.clock.monotonic_ms()))

    room.runtime.on_resigned(0)
    room.clock.advance(100)

    assert fired == []
    assert room.clock.pending_timers == []


def test_timer_s_records_are_written():
    room = Room()
    shard = room.shard
    room.schedule(10, lambda: shard.write(_result(shard.machine)))

    room.clock.advance(10)

    assert room.machine.totals == {"a": 7}


def _result(machine: Totals) -> CoordinatorResult:
    return CoordinatorResult([machine.add("a", 7)], lambda error: None)


def test_stopped_runtime_is_not_available():
    room = Room()
    room.log.is_holding = True
    room.add("a", 1)

    room.runtime.stop()

    assert room.answers == [("a+1", NOT_COORDINATOR)]
    assert room.refusal() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.clock.pending_timers == []


# Loading.


def elected_above_its_high_watermark() -> Room:
    """The next leader, which has what is not committed, as far as it knows."""
    room = Room()
    room.add("a", 1)
    room.log.is_holding = True
    room.add("a", 2)
    room.add("a", 4)
    room.runtime.on_elected(0, 1)
    room.clock.advance(0)
    return room


def test_new_leader_serves_when_all_that_it_has_read_is_committed():
    """It may have been acknowledged by the leader before: older state than that must not be shown (KIP-207)."""
    room = elected_above_its_high_watermark()
    assert room.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    (shard,) = room.runtime.shards()
    told: list[bool] = []
    shard.when_loaded(lambda: told.append(shard.machine.is_loaded))

    room.log.commit()

    assert room.machine.committed() == room.machine.totals == {"a": 7}
    assert told == [True]
    assert room.clock.pending_timers == []


def test_what_is_not_committed_at_the_election_for_long_is_computed_on_but_not_shown():
    """The ISR may be too small to commit anything: what is known to be committed is served all the same."""
    room = elected_above_its_high_watermark()

    room.clock.advance(WRITE_TIMEOUT_MS)

    assert room.machine.is_loaded
    assert room.machine.totals == {"a": 7}
    assert room.machine.committed() == {"a": 1}
    room.wait("read")
    room.log.commit()

    assert room.machine.committed() == {"a": 7}
    assert room.answers[-1] == ("read", OK)


def test_leadership_lost_while_it_waits_for_the_commit_ends_the_load():
    room = elected_above_its_high_watermark()
    (shard,) = room.runtime.shards()

    room.runtime.on_resigned(0)
    room.log.commit()
    room.clock.advance(WRITE_TIMEOUT_MS)

    assert shard.state is ShardState.RESIGNED
    assert not shard.machine.is_loaded
    assert room.clock.pending_timers == []


def test_what_was_read_and_then_lost_is_read_anew():
    room = elected_above_its_high_watermark()
    del room.log.batches[1:]

    room.log.commit(ErrorCode.KAFKA_STORAGE_ERROR)
    room.clock.advance(0)

    assert room.machine.totals == {"a": 1}


@pytest.mark.usefixtures("one_step_in_each_turn")
def test_what_is_committed_while_it_loads_is_shown():
    room = Room()
    room.log.is_holding = True
    for _ in range(10):
        room.add("a", 1)
    room.runtime.on_elected(0, 1)
    room.run_one_timer()

    room.log.high_watermark = room.log.next_offset
    room.clock.advance(0)

    assert room.machine.committed() == room.machine.totals == {"a": 10}
    assert not room.shard.has_writes


@pytest.mark.usefixtures("one_step_in_each_turn")
def test_loading_lets_the_loop_run_between_steps_also_over_records_of_unknown_types():
    unknown = SimpleRecord(b"\x7f\xff", b"x")
    log = MemoryLog()
    log.append_batch(build_batch([unknown] * 3))
    log.high_watermark = log.next_offset
    room = Room(log, is_loaded=False)

    turns = 0
    while room.loaded_count == 0:
        assert room.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        room.run_one_timer()
        turns += 1

    assert turns == 4
    assert room.machine.is_loaded


def test_unknown_record_types_are_skipped_with_a_warning(caplog: pytest.LogCaptureFixture):
    log = MemoryLog()
    log.append_batch(build_batch([SimpleRecord(b"\0\x03\0\1g", b"\0\0x"), _stored("a", 5)]))
    log.high_watermark = log.next_offset

    room = Room(log)

    assert room.machine.totals == {"a": 5}
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "unknown record type 3" in warning.getMessage()


def _stored(name: str, total: int) -> SimpleRecord:
    return TOTALS.encode(CoordinatorRecord(TotalKey(name=name), TotalValue(total=total)), 0)


def test_ends_of_transactions_are_told_to_the_state_machine():
    log = MemoryLog()
    for control_type in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
        log.append_batch(build_control_batch(control_type, encode_end_transaction_value(0), timestamp=0, producer_id=9, producer_epoch=0))
    log.high_watermark = log.next_offset

    assert Room(log).machine.ended_transactions == [(9, True), (9, False)]


def test_callbacks_wait_for_the_end_of_loading():
    room = Room(is_loaded=False)
    called: list[ShardState] = []
    (shard,) = room.runtime.shards()
    shard.when_loaded(lambda: called.append(shard.state))
    assert called == []

    room.clock.advance(0)
    shard.when_loaded(lambda: called.append(shard.state))

    assert called == [ShardState.ACTIVE, ShardState.ACTIVE]


class UnreadableLog(MemoryLog):
    """Cannot be read as long as `error` is set."""

    error: Exception | None = None

    def read(self, partition: int) -> Iterator[bytearray]:
        if self.error is not None:
            raise self.error
        yield from super().read(partition)


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ValueError("a bug")])
def test_partition_that_cannot_be_loaded_is_looked_for_elsewhere_until_the_next_epoch(error: Exception):
    log = UnreadableLog()
    log.error = error
    room = Room(log)
    assert room.refusal() is NOT_COORDINATOR
    assert room.runtime.get_active_shards() == []

    log.error = None
    room.runtime.on_elected(0, 1)
    room.clock.advance(0)
    room.add("a", 1)

    assert room.answers == [("a+1", OK)]


@pytest.mark.usefixtures("one_step_in_each_turn")
def test_partition_that_cannot_be_loaded_does_not_keep_others_from_loading():
    log = UnreadableLog()
    log.error = ValueError("a bug")
    room = Room(log, is_loaded=False)
    room.runtime.on_elected(1, 0)
    room.run_one_timer()

    log.error = None
    room.clock.advance(0)

    assert [shard.partition for shard in room.runtime.active_shards()] == [1]


@pytest.mark.usefixtures("one_step_in_each_turn")
def test_resigned_while_it_loads_is_loaded_no_further():
    log = MemoryLog()
    log.append_batch(build_batch([_stored("a", number) for number in range(1, 10)]))
    room = Room(log, is_loaded=False)
    (shard,) = room.runtime.shards()
    room.run_one_timer()

    room.runtime.on_resigned(0)
    room.clock.advance(0)

    assert shard.state is ShardState.RESIGNED
    assert shard.machine.totals == {"a": 1}
    assert room.refusal() is NOT_COORDINATOR


class ColdLog(MemoryLog):
    """Partition 0 has to be waited for. `answers` are what the load sent back."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = Deferred()
        self.answers: list[object] = []

    def read(self, partition: int) -> LogChunks:
        if partition == 0:
            self.answers.append((yield self.disk))
        yield from super().read(partition)


def test_partition_that_waits_for_the_disk_does_not_keep_others_from_loading():
    log = ColdLog()
    log.append_batch(build_batch([_stored("a", 5)]))
    log.high_watermark = log.next_offset
    room = Room(log)
    room.runtime.on_elected(1, 0)
    room.clock.advance(0)
    assert [shard.partition for shard in room.runtime.active_shards()] == [1]
    assert room.loaded_count == 0

    log.disk.complete("arrived")
    room.clock.advance(0)

    assert log.answers == ["arrived"]
    assert room.machine.totals == {"a": 5}
    assert room.loaded_count == 1


def test_leadership_lost_while_it_waits_for_the_disk_ends_the_load():
    log = ColdLog()
    room = Room(log)
    room.runtime.on_resigned(0)

    log.disk.complete(None)
    room.clock.advance(0)

    assert log.answers == []
    assert room.refusal() is NOT_COORDINATOR


def test_runtime_that_stopped_while_it_waits_for_the_disk_loads_nothing():
    log = ColdLog()
    room = Room(log)
    room.runtime.stop()

    log.disk.complete(None)
    room.clock.advance(0)

    assert log.answers == []
    assert room.clock.pending_timers == []
