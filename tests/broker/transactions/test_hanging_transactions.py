"""Which open transactions are named, when, and with which command."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.image import TRANSACTION_STATE_TOPIC
from broker.transactions.coordinator_inquiries import CoordinatorInquiries
from broker.transactions.hanging_transactions import (
    LATE_TRANSACTION_BUFFER_MS,
    LINES_PER_ROUND_MAX,
    ROUND_INTERVAL_MS,
    SECOND_QUESTION_DELAY_MS,
    HangingTransactions,
)
from broker.transactions.init_producer_id import InitProducerId
from storage.markers import TransactionMarker
from tests.broker.replication.world import World, batch
from tests.broker.transactions.coordinator_room import Coordinator
from tests.broker.transactions.room import FIRST_PRODUCER_ID, TIMEOUT_MS
from tests.broker.transactions.served_coordinator import ServedCoordinator, ServedCoordinators
from tests.support.transactions import verified

MAX_TIMEOUT_MS = 900_000
TWO_ROUNDS_MS = 2 * ROUND_INTERVAL_MS + SECOND_QUESTION_DELAY_MS
LATE_MS = MAX_TIMEOUT_MS + LATE_TRANSACTION_BUFFER_MS
COMMAND = "kafka-transactions.sh --bootstrap-server host1:9092"


class Room:
    """Broker 1 leads x-0. The coordinator is that of broker 2, which aborts no transaction by itself unless `aborts`."""

    def __init__(self, directory: Path, caplog: pytest.LogCaptureFixture, *, aborts: bool = False, **settings: Any) -> None:
        caplog.set_level(logging.WARNING, "barnabas.transactions")
        self.world = World(directory)
        interval = {} if aborts else {"abort_interval_ms": 10**9}
        self.coordinator = Coordinator(clock=self.world.clock, **interval, **settings)
        self.peer = ServedCoordinator(self.coordinator)
        self.world.create_topic("x")
        self.world.create_topic(TRANSACTION_STATE_TOPIC, replicas=(2,), leader=2)
        inquiries = CoordinatorInquiries(
            Coordinator(exists=False, clock=self.world.clock).served,
            self.world.metadata,
            lambda: ServedCoordinators(host2=self.peer),  # type: ignore[arg-type, return-value]
            self.world.clock,
            listener_name="PLAINTEXT",
        )
        self.hanging = HangingTransactions(
            self.world.replica_manager.each_partition,
            self.world.replica_manager.find_partition,
            inquiries,
            self.world.clock,
            max_timeout_ms=MAX_TIMEOUT_MS,
            bootstrap_server=lambda: "host1:9092",
        )
        self.hanging.start()
        self._caplog = caplog

    def begin(self, producer_id: int, *, index: int = 0, epoch: int = 0) -> None:
        """A producer's batch is appended here, whatever its coordinator knows."""
        log = self.world.partition("x", index).log
        records = batch("v", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
        log.append_as_leader(records, leader_epoch=0, now_ms=self.world.clock.now_ms(), transaction=verified(log, records))

    def end(self, producer_id: int, epoch: int = 0) -> None:
        marker = TransactionMarker(producer_id, epoch, coordinator_epoch=0, is_commit=False)
        self.world.partition("x").log.append_markers([marker], leader_epoch=0, now_ms=self.world.clock.now_ms())

    def advance(self, elapsed_ms: float) -> list[str]:
        """The lines of that time."""
        self._caplog.clear()
        self.world.clock.advance(elapsed_ms)
        return [record.getMessage() for record in self._caplog.records if record.getMessage().startswith("a transaction")]


@pytest.fixture
def room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Room:
    return Room(tmp_path, caplog)


def test_a_transaction_that_no_coordinator_knows_is_named_once_with_the_command_that_ends_it(room: Room) -> None:
    room.world.produce("x", batch("before"))
    room.begin(77, epoch=3)

    assert room.advance(2 * ROUND_INTERVAL_MS) == []
    (line,) = room.advance(SECOND_QUESTION_DELAY_MS)

    assert f"`{COMMAND} abort --topic x --partition 0 --start-offset 1` ends it topic=x" in line
    assert line.endswith("producer_id=77 producer_epoch=3 start_offset=1")
    assert room.advance(10 * ROUND_INTERVAL_MS) == []


def test_a_producer_that_hangs_once_more_is_named_once_more(room: Room) -> None:
    room.begin(77)
    room.advance(TWO_ROUNDS_MS)
    room.end(77)
    room.begin(77, epoch=1)

    (line,) = room.advance(TWO_ROUNDS_MS)

    assert "--start-offset 2`" in line


def test_a_transaction_that_its_coordinator_ended_without_this_partition_hangs(room: Room) -> None:
    room.coordinator.init("t")
    room.coordinator.add("t", f"{FIRST_PRODUCER_ID}:0", "y-0")
    room.begin(FIRST_PRODUCER_ID)

    room.coordinator.end("t", f"{FIRST_PRODUCER_ID}:0")
    room.coordinator.markers.write_all()

    (line,) = room.advance(TWO_ROUNDS_MS)

    assert "a transaction hangs" in line
    assert line.endswith("start_offset=0 transactional_id=t state=CompleteCommit")


def test_an_ongoing_transaction_is_not_named(room: Room) -> None:
    room.coordinator.init("t")
    room.coordinator.add("t", f"{FIRST_PRODUCER_ID}:0", "x-0")
    room.begin(FIRST_PRODUCER_ID)

    assert room.advance(LATE_MS) == []
    assert "DescribeTransactionsRequest" in room.peer.requests


def test_transactions_that_end_before_the_second_round_are_not_asked_about(room: Room) -> None:
    for producer_id in range(3):
        room.begin(producer_id)
        assert room.advance(ROUND_INTERVAL_MS) == []
        room.end(producer_id)

    assert room.peer.requests == []


def test_a_transaction_that_its_coordinator_does_not_abort_is_late(room: Room) -> None:
    room.coordinator.init("the id")
    room.coordinator.add("the id", f"{FIRST_PRODUCER_ID}:0", "x-0")
    room.begin(FIRST_PRODUCER_ID)

    (line,) = room.advance(LATE_MS + ROUND_INTERVAL_MS)

    assert f"`{COMMAND} forceTerminateTransaction --transactionalId 'the id'` ends it" in line
    assert line.endswith('start_offset=0 transactional_id="the id" state=Ongoing')
    assert room.advance(10 * ROUND_INTERVAL_MS) == []


def test_a_late_transaction_whose_outcome_is_decided_is_not_to_be_aborted(room: Room) -> None:
    room.coordinator.init("t")
    room.coordinator.add("t", f"{FIRST_PRODUCER_ID}:0", "x-0")
    room.begin(FIRST_PRODUCER_ID)
    room.coordinator.end("t", f"{FIRST_PRODUCER_ID}:0")

    (line,) = room.advance(LATE_MS + ROUND_INTERVAL_MS)

    assert f"`{COMMAND} describe --transactional-id t` shows it" in line
    assert "abort" not in line
    assert line.endswith("state=PrepareCommit")


def test_a_transaction_without_a_timeout_is_never_late(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    room = Room(tmp_path, caplog, aborts=True, is_two_phase_commit_enabled=True)
    room.coordinator.served.init_producer_id("t", InitProducerId(TIMEOUT_MS, enable_two_phase_commit=True))
    room.coordinator.add("t", f"{FIRST_PRODUCER_ID}:0", "x-0")
    room.begin(FIRST_PRODUCER_ID)

    assert room.advance(10 * LATE_MS) == []


def test_nothing_is_named_until_all_coordinators_have_answered(room: Room) -> None:
    room.begin(77)
    room.peer.is_lost = True
    assert room.advance(5 * ROUND_INTERVAL_MS) == []

    room.peer.is_lost = False

    assert len(room.advance(TWO_ROUNDS_MS)) == 1


def test_what_one_answer_does_not_have_is_asked_about_once_more(room: Room) -> None:
    """While a coordinator moves, neither the old nor the new one may have the transaction."""
    room.coordinator.init("t")
    room.coordinator.add("t", f"{FIRST_PRODUCER_ID}:0", "x-0")
    room.begin(FIRST_PRODUCER_ID)
    room.advance(2 * ROUND_INTERVAL_MS - 1)
    room.coordinator.served.runtime.on_resigned(0)
    assert room.advance(1) == []
    asked_count = len(room.peer.requests)

    room.coordinator.apply(room.coordinator.partition_record(leader_epoch=1))

    assert room.advance(SECOND_QUESTION_DELAY_MS) == []
    assert asked_count == 1 < len(room.peer.requests)


def test_a_transaction_that_ends_while_it_is_asked_about_is_not_named(room: Room) -> None:
    room.begin(77)
    room.peer.before_answer = lambda name: room.end(77)

    assert room.advance(TWO_ROUNDS_MS) == []


def test_only_the_leader_names(room: Room) -> None:
    room.begin(77)
    room.advance(ROUND_INTERVAL_MS)

    room.world.change_partition("x", leader=2)

    assert room.advance(TWO_ROUNDS_MS) == []
    assert room.peer.requests == []


def test_many_are_named_some_in_each_round(room: Room) -> None:
    for producer_id in range(LINES_PER_ROUND_MAX + 5):
        room.begin(producer_id)

    assert len(room.advance(TWO_ROUNDS_MS)) == LINES_PER_ROUND_MAX
    assert len(room.advance(TWO_ROUNDS_MS)) == 5
    assert room.advance(10 * ROUND_INTERVAL_MS) == []


async def test_after_a_stop_nothing_is_asked(room: Room) -> None:
    room.begin(77)
    room.advance(ROUND_INTERVAL_MS)

    await room.hanging.stop()

    assert room.advance(TWO_ROUNDS_MS) == []
    assert room.peer.requests == []
