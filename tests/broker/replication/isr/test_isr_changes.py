"""Proposals on their way to a controller that checks them as Kafka's does: batches, repeats, and what becomes of each partition."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.replication.isr import isr_changes
from broker.replication.isr.isr_changes import RETRY_MAX_MS, RETRY_MS, IsrChanges
from broker.replication.isr.isr_state import CommittedIsr, PendingExpandIsr, PendingShrinkIsr
from protocol import codec
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, BrokerState
from tests.broker.replication.fake_controller import FakeController
from tests.broker.replication.world import NODE_ID, World, batch

LAG_MAX_MS = 30_000
PARTITIONS = 3


class Leader:
    """Broker 1 leads three partitions of "a"; brokers 2 and 3 follow. Its way to the controller is a real IsrChanges."""

    def __init__(self, directory: Path, *, is_echoing: bool = True) -> None:
        self.world = World(directory)
        self.world.clock.advance(1_000_000)
        self.topic_id = self.world.create_topic("a", partitions=PARTITIONS, replicas=(1, 2, 3))
        self.controller = FakeController(self.world, is_echoing=is_echoing)
        self.changes = IsrChanges(
            self.controller, self.world.clock, node_id=NODE_ID, broker_epoch=lambda: self.world.metadata.brokers[NODE_ID].epoch
        )
        self.world.alter_isr = self.changes.submit

    def isrs(self) -> list[tuple[int, ...]]:
        return [self.world.partition("a", index).isr for index in range(PARTITIONS)]

    def lose_broker_3(self, *indexes: int) -> None:
        """It falls behind in these partitions."""
        for index in indexes:
            self.world.produce("a", batch("x"), index=index)
        self.world.clock.advance(LAG_MAX_MS + 1)
        for index in indexes:
            self.world.follower_fetch(2, "a", 1, index=index)
            self.world.partition("a", index).maybe_shrink_isr(self.world.clock.monotonic_ms())

    def sent(self) -> list[list[int]]:
        """The partitions of each request."""
        return [[asked.partition_index for topic in request.topics for asked in topic.partitions] for request in self.controller.requests]


async def run() -> None:
    """Let the tasks do what they can without time."""
    for _ in range(20):
        await asyncio.sleep(0)


# -- requests ----------------------------------------------------------------------------------------------------------


async def test_what_is_proposed_together_is_one_request(tmp_path: Path) -> None:
    leader = Leader(tmp_path)

    leader.lose_broker_3(0, 1, 2)
    await run()

    assert leader.sent() == [[0, 1, 2]]
    assert leader.isrs() == [(1, 2)] * 3
    assert leader.world.partition("a").log.high_watermark == 1


async def test_request_tells_the_controller_all_that_it_checks(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.world.register_broker(1, epoch=5)

    leader.lose_broker_3(1)
    await run()

    request = leader.controller.requests[0]
    asked = request.topics[0].partitions[0]
    assert (request.broker_id, request.broker_epoch, request.topics[0].topic_id) == (1, 5, leader.topic_id)
    assert asked.new_isr_with_epochs == [BrokerState(broker_id=1, broker_epoch=5), BrokerState(broker_id=2, broker_epoch=-1)]
    assert (asked.partition_index, asked.leader_epoch, asked.partition_epoch, asked.leader_recovery_state) == (1, 0, 0, 0)
    assert codec.decode(AlterPartitionRequest, 3, codec.encode(request, 3))[0] == request


async def test_one_request_is_in_flight_and_the_next_takes_all_that_came_meanwhile(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.controller.hold()
    leader.lose_broker_3(0)
    await run()

    leader.lose_broker_3(1, 2)
    await run()
    assert leader.sent() == [[0]]
    leader.controller.release()
    await run()

    assert leader.sent() == [[0], [1, 2]]
    assert leader.isrs() == [(1, 2)] * 3


async def test_very_many_proposals_go_in_several_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "PARTITIONS_PER_REQUEST_MAX", 2)
    leader = Leader(tmp_path)

    leader.lose_broker_3(0, 1, 2)
    await run()

    assert leader.sent() == [[0, 1], [2]]
    assert leader.isrs() == [(1, 2)] * 3


async def test_request_that_fails_is_repeated_with_growing_waits(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    failures = 8
    leader.controller.errors = [ConnectionResetError(), ErrorCode.NOT_CONTROLLER, TimeoutError(), RuntimeError("a bug")] * 2
    leader.lose_broker_3(0)
    await run()

    waits_ms = []
    for _ in range(failures):
        timer = leader.world.clock.pending_timers[0]
        waits_ms.append(timer.due_ms - leader.world.clock.monotonic_ms())
        leader.world.clock.advance(waits_ms[-1])
        await run()

    assert waits_ms == [min(RETRY_MS * 2**count, RETRY_MAX_MS) for count in range(failures)]
    assert len(leader.controller.requests) == failures + 1
    assert leader.isrs()[0] == (1, 2)


async def test_proposals_of_a_time_without_a_controller_wait_for_the_repeat(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.controller.errors = [ConnectionRefusedError()]
    leader.lose_broker_3(0)
    await run()

    leader.world.partition("a", 1).in_sync.followers[3].last_caught_up_ms = -LAG_MAX_MS
    leader.world.produce("a", batch("x"), index=1)
    leader.world.follower_fetch(2, "a", 1, index=1)
    leader.world.partition("a", 1).maybe_shrink_isr(leader.world.clock.monotonic_ms())
    await run()
    assert leader.sent() == [[0]]
    leader.world.clock.advance(RETRY_MS)
    await run()

    assert leader.sent() == [[0], [0, 1]]


async def test_stale_broker_epoch_is_looked_up_anew(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    epochs = iter([99, 0])
    leader.changes = IsrChanges(leader.controller, leader.world.clock, node_id=NODE_ID, broker_epoch=lambda: next(epochs))
    leader.world.alter_isr = leader.changes.submit
    leader.lose_broker_3(0)
    await run()
    assert leader.isrs()[0] == (1, 2, 3)

    leader.world.clock.advance(RETRY_MS)
    await run()

    assert leader.isrs()[0] == (1, 2)


async def test_stop_gives_up_what_is_in_flight_and_sends_no_more(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.controller.hold()
    leader.lose_broker_3(0)
    await run()

    await leader.changes.stop()
    leader.controller.release()
    leader.world.partition("a", 1).in_sync.followers[3].last_caught_up_ms = -LAG_MAX_MS
    leader.world.produce("a", batch("x"), index=1)
    leader.world.partition("a", 1).maybe_shrink_isr(leader.world.clock.monotonic_ms())
    await run()

    assert leader.sent() == [[0]]
    assert leader.isrs()[0] == (1, 2, 3)


# -- answers of single partitions --------------------------------------------------------------------------------------


async def test_partition_that_the_controller_leaves_out_is_sent_again(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    leader.controller.left_out = {1}
    leader.lose_broker_3(0, 1)
    await run()
    assert leader.isrs()[:2] == [(1, 2), (1, 2, 3)]

    leader.controller.left_out = set()
    leader.world.clock.advance(RETRY_MS)
    await run()

    assert leader.sent() == [[0, 1], [1]]
    assert leader.isrs()[1] == (1, 2)


async def test_controller_that_is_behind_the_leader_is_asked_again(tmp_path: Path) -> None:
    """NOT_CONTROLLER for a partition: it has not replayed the epoch yet that the leader knows, maybe it is deposed."""
    leader = Leader(tmp_path, is_echoing=False)
    key = leader.topic_id, 0
    ahead = leader.controller.registrations[key]
    leader.world.change_partition("a", isr=[1, 2, 3])
    leader.lose_broker_3(0)
    await run()
    assert isinstance(leader.world.partition("a").in_sync.state, PendingShrinkIsr)

    leader.controller.commit(key, ahead.isr)
    leader.world.clock.advance(RETRY_MS)
    await run()

    assert leader.sent() == [[0], [0]]
    assert leader.world.partition("a").partition_epoch == 2


async def test_ineligible_replica_is_given_up_and_may_be_proposed_again(tmp_path: Path) -> None:
    """Broker 2 is fenced when the controller looks, though the leader did not know yet."""
    leader = Leader(tmp_path)
    leader.lose_broker_3(0)
    await run()
    leader.controller.hold()
    leader.world.follower_fetch(3, "a", 1)
    await run()

    leader.world.register_broker(3, is_fenced=True)
    leader.controller.release()
    await run()
    partition = leader.world.partition("a")
    assert isinstance(partition.in_sync.state, CommittedIsr)
    leader.world.register_broker(3)
    leader.world.follower_fetch(3, "a", 1)
    await run()

    assert set(partition.isr) == {1, 2, 3}


@pytest.mark.parametrize("is_echoing", [True, False])
async def test_isr_of_a_follower_that_comes_and_goes_is_what_the_controller_has(tmp_path: Path, is_echoing: bool) -> None:
    """The metadata tells of each change before its answer, or of none until the end."""
    leader = Leader(tmp_path, is_echoing=is_echoing)
    for count in range(1, 4):
        leader.world.produce("a", batch("x"))
        leader.world.clock.advance(LAG_MAX_MS + 1)
        leader.world.follower_fetch(2, "a", count)
        leader.world.partition("a").maybe_shrink_isr(leader.world.clock.monotonic_ms())
        await run()
        assert leader.isrs()[0] == (1, 2)
        leader.world.follower_fetch(3, "a", count)
        await run()
        assert leader.isrs()[0] == (1, 2, 3)
    leader.controller.tell_metadata()

    partition = leader.world.partition("a")
    assert (partition.isr, partition.partition_epoch) == ((1, 2, 3), 6)
    assert leader.controller.registrations[leader.topic_id, 0].partition_epoch == 6


async def test_change_that_the_controller_overtook_waits_for_the_metadata(tmp_path: Path) -> None:
    """INVALID_UPDATE_VERSION: the controller has fenced broker 2 and dropped it; the leader hears of that by the metadata alone."""
    leader = Leader(tmp_path, is_echoing=False)
    leader.lose_broker_3(0)
    await run()
    leader.controller.commit((leader.topic_id, 0), (1,))
    leader.world.follower_fetch(3, "a", 1)
    await run()
    partition = leader.world.partition("a")
    assert isinstance(partition.in_sync.state, PendingExpandIsr)
    assert leader.world.clock.pending_timers == []

    leader.controller.tell_metadata()

    assert isinstance(partition.in_sync.state, CommittedIsr)
    assert (partition.isr, partition.partition_epoch) == ((1,), 2)


async def test_proposal_is_not_attempted_while_a_void_one_is_in_flight(tmp_path: Path) -> None:
    leader = Leader(tmp_path, is_echoing=False)
    leader.controller.hold()
    leader.lose_broker_3(0)
    await run()
    leader.world.change_partition("a", isr=[1, 3])  # by the controller, which did not know of the request yet
    leader.controller.registrations[leader.topic_id, 0] = leader.world.metadata.topics["a"].partitions[0]

    leader.world.follower_fetch(2, "a", 1)
    partition = leader.world.partition("a")
    assert isinstance(partition.in_sync.state, CommittedIsr)
    leader.controller.release()
    await run()
    leader.world.follower_fetch(2, "a", 1)
    await run()

    assert leader.sent() == [[0], [0]]
    assert set(partition.isr) == {1, 2, 3}


# -- expiry ------------------------------------------------------------------------------------------------------------


async def test_replicas_that_fell_behind_are_dropped_at_intervals(tmp_path: Path) -> None:
    """Every half of replica.lag.time.max.ms."""
    leader = Leader(tmp_path)
    leader.world.replica_manager.end_loading()
    for index in range(PARTITIONS):
        leader.world.follower_fetch(2, "a", 0, index=index)
        leader.world.follower_fetch(3, "a", 0, index=index)
    leader.world.produce("a", batch("x"), index=1)
    leader.world.follower_fetch(2, "a", 1, index=1)

    leader.world.clock.advance(LAG_MAX_MS)
    await run()
    assert leader.sent() == []
    leader.world.clock.advance(LAG_MAX_MS // 2)
    await run()

    assert leader.sent() == [[1]]
    assert leader.isrs() == [(1, 2, 3), (1, 2), (1, 2, 3)]
    leader.world.replica_manager.stop()
    assert leader.world.clock.pending_timers == []


async def test_very_many_partitions_are_looked_at_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.loop.job.SLICE_US", 0)
    leader = Leader(tmp_path)
    leader.world.replica_manager.end_loading()
    for index in range(PARTITIONS):
        leader.world.produce("a", batch("x"), index=index)

    leader.world.clock.advance(LAG_MAX_MS // 2 * 3)
    await run()

    assert leader.isrs() == [(1,)] * PARTITIONS
    assert len(leader.world.clock.pending_timers) == 1


def test_broker_alone_looks_for_nobody(tmp_path: Path) -> None:
    world = World(tmp_path, is_alone=True)
    world.create_topic("a")

    world.replica_manager.end_loading()

    assert world.clock.pending_timers == []
