"""What all coordinators know of producer ids, here and at other brokers; and what cannot be known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.metadata.image import TRANSACTION_STATE_TOPIC
from broker.transactions.coordinator_inquiries import CoordinatorInquiries, KnownTransaction
from tests.broker.replication.world import World
from tests.broker.transactions.coordinator_room import Coordinator, three_ids
from tests.broker.transactions.room import TIMEOUT_MS
from tests.broker.transactions.served_coordinator import ServedCoordinator, ServedCoordinators

WAITS = "waits"


class Room:
    """Broker 1 asks its own coordinator, which has no id, and that of broker 2, which has three. Partition 0 of `__transaction_state` is
    led here, partition 1 there."""

    def __init__(self, directory: Path, version: int = 2) -> None:
        self.world = World(directory)
        self.local = Coordinator(clock=self.world.clock)
        self.remote = three_ids()
        self.peer = ServedCoordinator(self.remote, version)
        self.inquiries = CoordinatorInquiries(
            self.local.served,
            self.world.metadata,
            lambda: ServedCoordinators(host2=self.peer),  # type: ignore[arg-type, return-value]
            self.world.clock,
            listener_name="PLAINTEXT",
        )

    def create_state_topic(self) -> None:
        self.world.create_topic(TRANSACTION_STATE_TOPIC, partitions=2, replicas=(1, 2))
        self.world.change_partition(TRANSACTION_STATE_TOPIC, 1, leader=2)

    def ask(self, *producer_ids: int) -> Any:
        answer = self.inquiries.ask(producer_ids)
        self.world.clock.advance(0)
        return answer.value if answer.is_done else WAITS


@pytest.fixture
def room(tmp_path: Path) -> Room:
    room = Room(tmp_path)
    room.create_state_topic()
    return room


@pytest.mark.parametrize("version", range(3))
def test_transactions_of_other_brokers_are_told_as_these_describe_them(tmp_path: Path, version: int) -> None:
    room = Room(tmp_path, version)
    room.create_state_topic()
    start_ms = room.remote.clock.now_ms()

    known = room.ask(1000, 1001, 77)

    assert known[1000] == [KnownTransaction("a", 1000, "Ongoing", TIMEOUT_MS, start_ms, {"x": frozenset({0, 1})})]
    assert known[1000][0].has("x", 1)
    assert not known[1000][0].has("x", 2)
    assert [(each.state, each.has("x", 0)) for each in known[1001]] == [("CompleteCommit", False)]
    assert set(known) == {1000, 1001}


def test_transactions_of_this_broker_are_told(room: Room) -> None:
    room.local.init("here")
    room.local.add("here", "1000:0", "y-0")

    known = room.ask(1000)

    assert sorted(each.transactional_id for each in known[1000]) == ["a", "here"]


def test_without_their_topic_there_are_none(tmp_path: Path) -> None:
    assert Room(tmp_path).ask(1000) == {}


def test_nothing_is_known_while_a_partition_has_no_leader(room: Room) -> None:
    room.world.change_partition(TRANSACTION_STATE_TOPIC, 1, leader=-1)

    assert room.ask(1000) is None


def test_nothing_is_known_without_the_answer_of_another_broker(room: Room) -> None:
    room.peer.is_lost = True

    assert room.ask(1000) is None
    assert room.peer.requests == ["ListTransactionsRequest"]


def test_nothing_is_known_if_the_coordinator_moves_between_the_two_questions(room: Room) -> None:
    def move(name: str) -> None:
        if name == "DescribeTransactionsRequest":
            room.remote.served.runtime.on_resigned(0)

    room.peer.before_answer = move

    assert room.ask(1000) is None


@pytest.mark.parametrize("which", ["local", "remote"])
def test_nothing_is_known_while_a_coordinator_is_loading(room: Room, which: str) -> None:
    coordinator = getattr(room, which)
    coordinator.log.is_holding = True
    coordinator.init("new")  # what is not committed holds up the load
    coordinator.metadata.apply_committed([coordinator.partition_record(leader_epoch=1)])
    coordinator.clock.advance(0)

    assert room.ask(1000) is None


async def test_closing_closes_the_connections(tmp_path: Path) -> None:
    world, peers = World(tmp_path), ServedCoordinators(host2=ServedCoordinator(three_ids()))
    inquiries = CoordinatorInquiries(
        Coordinator().served,
        world.metadata,
        lambda: peers,  # type: ignore[arg-type, return-value]
        world.clock,
        listener_name="PLAINTEXT",
    )
    world.create_topic(TRANSACTION_STATE_TOPIC, replicas=(2,), leader=2)
    inquiries.ask([1])

    await inquiries.close()

    assert peers.is_closed
