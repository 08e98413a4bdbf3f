"""What becomes of a write, told once and never by the write timeout; and when all that was written is committed."""

from __future__ import annotations

from broker.coordination.records import CoordinatorResult
from protocol.errors import ErrorCode
from tests.broker.coordination.room import WRITE_TIMEOUT_MS, Room

OK = ErrorCode.NONE
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Outcomes(Room):
    """A room that remembers the outcomes of its writes. `told` has answers and outcomes in their order."""

    def __init__(self, *, is_holding: bool = False) -> None:
        super().__init__()
        self.log.is_holding = is_holding
        self.told: list[tuple[str, ErrorCode]] = []

    def add(self, name: str, amount: int, label: str = "") -> None:
        self.shard.write(
            CoordinatorResult(
                [self.machine.add(name, amount)],
                lambda error: self.told.append(("answer", error)),
                on_outcome=lambda error: self.told.append(("outcome", error)),
            )
        )

    def outcomes(self) -> list[ErrorCode]:
        return [error for kind, error in self.told if kind == "outcome"]

    def ask_when_committed(self) -> list[ErrorCode]:
        told: list[ErrorCode] = []
        self.shard.when_committed(told.append)
        return told


def elected_above_its_high_watermark() -> Outcomes:
    room = Outcomes(is_holding=True)
    room.add("a", 1)
    room.runtime.on_elected(0, 1)
    room.clock.advance(0)
    room.told.clear()
    return room


def test_outcome_is_told_after_the_answer():
    room = Outcomes()

    room.add("a", 2)

    assert room.told == [("answer", OK), ("outcome", OK)]


def test_write_timeout_is_no_outcome():
    room = Outcomes(is_holding=True)
    room.add("a", 2)

    room.clock.advance(WRITE_TIMEOUT_MS)
    assert room.told == [("answer", NOT_AVAILABLE)]
    room.log.commit()

    assert room.told == [("answer", NOT_AVAILABLE), ("outcome", OK)]


def test_refused_append_is_an_outcome():
    room = Outcomes()
    room.log.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS

    room.add("a", 2)

    assert room.outcomes() == [NOT_AVAILABLE]


def test_record_that_cannot_be_encoded_is_an_outcome():
    room = Outcomes()

    room.add("a" * 2**16, 1)

    assert room.outcomes() == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_outcome_after_the_timeout_is_an_error_when_the_shard_ends():
    room = Outcomes(is_holding=True)
    room.add("a", 2)
    room.clock.advance(WRITE_TIMEOUT_MS)

    room.runtime.on_resigned(0)
    room.log.commit()

    assert room.outcomes() == [NOT_COORDINATOR]


def test_lost_writes_are_told_when_the_shard_has_ended():
    room = Outcomes(is_holding=True)
    shard = room.shard
    seen: list[tuple[ErrorCode, bool]] = []
    for _ in range(2):
        record = room.machine.add("a", 1)
        shard.write(CoordinatorResult([record], lambda error: None, on_outcome=lambda error: seen.append((error, shard.is_active))))

    room.log.held[0](ErrorCode.KAFKA_STORAGE_ERROR)

    assert seen == [(NOT_COORDINATOR, False)] * 2


def test_record_that_cannot_be_replayed_is_an_outcome():
    room = Outcomes()
    room.machine.refuses_to_replay = 2

    room.add("a", 2)

    assert room.outcomes() == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_outcome_that_fails_does_not_keep_the_others_waiting():
    room = Outcomes(is_holding=True)

    def fail(error: ErrorCode) -> None:
        raise ValueError("a bug")

    room.shard.write(CoordinatorResult([room.machine.add("a", 1)], lambda error: None, on_outcome=fail))
    room.add("a", 2)

    room.log.commit()

    assert room.outcomes() == [OK]


def test_what_a_write_changed_is_not_committed_until_all_its_writes_are():
    room = Outcomes(is_holding=True)
    shard, totals = room.shard, room.machine.totals
    room.add("a", 2)
    room.add("a", -2)
    first, second = room.log.held

    seen = [shard.is_committed(totals, "a")]
    first(OK)
    seen.append(shard.is_committed(totals, "a"))
    second(OK)

    assert [*seen, shard.is_committed(totals, "a")] == [False, False, True]
    assert totals == {}


def test_other_keys_stay_committed():
    room = Outcomes()
    room.add("a", 1)
    room.log.is_holding = True

    room.add("b", 1)

    assert room.shard.is_committed(room.machine.totals, "a")
    assert not room.shard.is_committed(room.machine.totals, "b")


def test_what_the_write_timeout_activated_is_committed_when_the_log_says_so():
    room = elected_above_its_high_watermark()
    room.clock.advance(WRITE_TIMEOUT_MS)
    assert not room.shard.is_committed(room.machine.totals, "a")
    told = room.ask_when_committed()
    assert told == []

    room.log.commit()

    assert told == [OK]
    assert room.shard.is_committed(room.machine.totals, "a")


def test_when_committed_tells_at_once_when_nothing_is_in_flight():
    room = Outcomes()
    room.add("a", 1)

    assert room.ask_when_committed() == [OK]


def test_when_committed_waits_for_what_was_written_before_and_for_nothing_later():
    room = Outcomes(is_holding=True)
    room.add("a", 1)
    told = room.ask_when_committed()
    room.add("a", 2)
    assert told == []

    room.log.held[0](OK)

    assert told == [OK]


def test_when_committed_has_no_timeout_and_ends_with_the_shard():
    room = Outcomes(is_holding=True)
    shard = room.shard
    room.add("a", 1)
    told = room.ask_when_committed()

    room.clock.advance(10 * WRITE_TIMEOUT_MS)
    assert told == []
    room.runtime.on_resigned(0)

    assert told == [NOT_COORDINATOR]
    shard.when_committed(told.append)
    assert told == [NOT_COORDINATOR] * 2
