"""A coordinator's shard with the real marker channels: from EndTxn to the complete transaction, across failovers of either side."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.transactions.marker_channels import RETRY_BACKOFF_MS
from protocol.errors import ErrorCode
from tests.broker.transactions.channels_room import ChannelsRoom
from tests.broker.transactions.fake_peers import FakePeers
from tests.broker.transactions.room import Room

STATE_PARTITION = 0  # the room's only one


class Coordinator(Room):
    """A shard whose markers go to broker 2, where the topic `b` is led."""

    def __init__(self, directory: Path) -> None:
        super().__init__(is_holding_markers=True)
        leaders = ChannelsRoom(directory, state_partition=STATE_PARTITION)
        leaders.topic("b", leader=2, partitions=2)
        self.leaders = leaders
        self.peers: FakePeers = leaders.peers
        self.markers = leaders.channels  # type: ignore[assignment]
        self.clock = leaders.clock
        self.fail_over()

    def fail_over(self) -> None:
        """The shard's life ends; the next one begins in the next epoch."""
        self.runtime.stop()
        self.epoch += 1
        self.runtime = self.new_runtime()
        self.runtime.start()
        self.runtime.on_elected(STATE_PARTITION, self.epoch)
        self.clock.advance(0)

    def decided(self, *, commit: bool = True) -> str:
        """A transaction of `t` whose outcome is decided; returns the answer."""
        producer = self.init("t").removeprefix("NONE ")
        assert self.add("t", producer, "b-0", "b-1") == "NONE"
        answer = self.end("t", producer, commit=commit)
        self.clock.advance(0)
        return answer

    def answer(self, errors: dict[str, ErrorCode] | None = None) -> None:
        self.leaders.answer(errors)


@pytest.fixture
def coordinator(tmp_path: Path) -> Coordinator:
    return Coordinator(tmp_path)


def test_a_transaction_is_complete_when_its_markers_are_written(coordinator: Coordinator) -> None:
    assert coordinator.decided() == "NONE 1000:1"
    assert coordinator.state("t") == "PrepareCommit 1000:1 b-0 b-1"

    coordinator.answer()

    assert coordinator.state("t") == "CompleteCommit 1000:1"


def test_additions_go_on_when_the_markers_are_written(coordinator: Coordinator) -> None:
    coordinator.decided()
    answers = coordinator.add_later("t", "1000:1", "b-0")
    assert answers == []

    coordinator.answer()

    assert answers == ["NONE"]


def test_the_next_life_writes_the_markers_again(coordinator: Coordinator) -> None:
    coordinator.decided()
    before = coordinator.peers.take()

    coordinator.fail_over()
    before.answer()
    coordinator.clock.advance(0)

    assert coordinator.state("t") == "PrepareCommit 1000:1 b-0 b-1"
    assert [marker.coordinator_epoch for marker in coordinator.peers.requests[0].message.markers] == [coordinator.epoch]
    coordinator.answer()
    assert coordinator.state("t") == "CompleteCommit 1000:1"


def test_both_sides_fail_over(coordinator: Coordinator) -> None:
    coordinator.decided(commit=False)
    coordinator.leaders.move("b", -1, 0)
    coordinator.fail_over()
    coordinator.leaders.move("b", 3, 0)
    coordinator.leaders.move("b", 3, 1)

    while coordinator.peers.requests:
        coordinator.answer()

    assert coordinator.state("t") == "CompleteAbort 1000:1"


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_an_id_whose_marker_is_refused_for_good_can_be_initialized_again(coordinator: Coordinator, error: ErrorCode) -> None:
    coordinator.decided()
    assert coordinator.init("t") == "CONCURRENT_TRANSACTIONS"

    coordinator.answer({"1000 b-0": error, "1000 b-1": ErrorCode.NOT_LEADER_OR_FOLLOWER})
    coordinator.clock.advance(RETRY_BACKOFF_MS)
    assert coordinator.init("t") == "CONCURRENT_TRANSACTIONS"
    coordinator.answer()

    assert coordinator.init("t") == "NONE 1000:2"
