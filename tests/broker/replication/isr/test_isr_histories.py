"""Random histories of a leader, two followers and the controller: whoever the controller may elect has all that was committed.

Requests and answers between leader and controller are late or lost, metadata comes late, the controller drops followers by itself.
After each step every member of the controller's ISR must have all records below the leader's high watermark, and so all that was
acknowledged with acks=all: each of them may be the next leader.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.replication.isr.isr_state import CommittedIsr, IsrProposal, OnIsrAnswer
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequestPartitionData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from tests.broker.replication.fake_controller import FakeController
from tests.broker.replication.world import NODE_ID, World, batch

SEEDS = 20
STEPS = 250
LAG_MAX_MS = 30_000
FOLLOWERS = (2, 3)


class History:
    """One partition's history. `follower_ends` are the ends of the followers' logs as they are, whatever the leader knows."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(directory)
        self.world.clock.advance(1_000_000)
        self.key = self.world.create_topic("a", replicas=(NODE_ID, *FOLLOWERS)), 0
        self.partition = self.world.partition("a")
        self.controller = FakeController(self.world, is_echoing=False)
        self.follower_ends = dict.fromkeys(FOLLOWERS, 0)
        self.requests: list[tuple[IsrProposal, OnIsrAnswer]] = []
        self.answers: list[tuple[AlterPartitionResponsePartitionData, IsrProposal, OnIsrAnswer]] = []
        self.acknowledged_end = 0
        self.steps: dict[Callable[[], Any], int] = {
            self.produce: 4, self.fetch: 8, self.wait: 2, self.look_for_lag: 2, self.reach_controller: 3, self.reach_leader: 3,
            self.lose_answer: 1, self.tell_metadata: 2, self.drop_follower: 1,
        }  # fmt: skip

    def step(self) -> None:
        self.random.choices(list(self.steps), list(self.steps.values()))[0]()
        self.requests += [(sent.proposal, sent.on_answer) for sent in self.world.proposals]
        self.world.proposals.clear()

    def produce(self) -> None:
        def note(results: list[Any]) -> None:
            if results[0].error_code is ErrorCode.NONE:
                self.acknowledged_end = max(self.acknowledged_end, results[0].last_offset + 1)

        self.world.replica_manager.append([("a", 0, batch("x"))], acks=-1, timeout_ms=10 * LAG_MAX_MS, on_done=note)

    def fetch(self) -> None:
        """A fetch shows what the follower has; the records of its answer are on its log when it fetches next."""
        node_id = self.random.choice(FOLLOWERS)
        for read in self.world.follower_fetch(node_id, "a", self.follower_ends[node_id]):
            read.release()
        self.follower_ends[node_id] = self.random.randint(self.follower_ends[node_id], self.partition.log.log_end_offset)

    def wait(self) -> None:
        self.world.clock.advance(self.random.choice((100, LAG_MAX_MS // 2, LAG_MAX_MS + 1)))

    def look_for_lag(self) -> None:
        self.partition.maybe_shrink_isr(self.world.clock.monotonic_ms())

    def reach_controller(self) -> None:
        if self.requests:
            proposal, on_answer = self.requests.pop(0)
            asked = AlterPartitionRequestPartitionData(
                partition_index=0,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[BrokerState(broker_id=each.broker_id, broker_epoch=each.broker_epoch) for each in proposal.members],
                partition_epoch=proposal.partition_epoch,
            )
            self.answers.append((self.controller.alter(proposal.topic_id, NODE_ID, asked), proposal, on_answer))

    def reach_leader(self) -> None:
        if self.answers:
            answer, proposal, on_answer = self.answers.pop(self.random.randrange(len(self.answers)))
            if on_answer(answer, self.world.clock.monotonic_ms()):
                self.requests.append((proposal, on_answer))

    def lose_answer(self) -> None:
        if self.answers:
            _, proposal, on_answer = self.answers.pop(0)
            self.requests.append((proposal, on_answer))

    def tell_metadata(self) -> None:
        self.controller.tell_metadata(1)

    def drop_follower(self) -> None:
        """Its broker was fenced for a moment."""
        isr = self.controller.registrations[self.key].isr
        gone = self.random.choice(FOLLOWERS)
        if gone in isr:
            self.controller.commit(self.key, tuple(node_id for node_id in isr if node_id != gone))

    def check(self) -> None:
        electable = [node_id for node_id in self.controller.registrations[self.key].isr if node_id != NODE_ID]
        high_watermark = self.partition.log.high_watermark
        lacking = [node_id for node_id in electable if self.follower_ends[node_id] < high_watermark]
        assert not lacking, f"{lacking} may be elected without offset {high_watermark - 1}"
        assert self.acknowledged_end <= high_watermark

    def come_to_rest(self) -> None:
        """All that is on its way arrives, and both followers catch up."""
        for _ in range(20):
            while self.requests or self.answers or self.controller.told:
                self.reach_controller()
                self.reach_leader()
                self.tell_metadata()
                self.step_of_followers()
            self.step_of_followers()

    def step_of_followers(self) -> None:
        for node_id in FOLLOWERS:
            self.follower_ends[node_id] = self.partition.log.log_end_offset
            for read in self.world.follower_fetch(node_id, "a", self.follower_ends[node_id]):
                read.release()
        self.requests += [(sent.proposal, sent.on_answer) for sent in self.world.proposals]
        self.world.proposals.clear()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whoever_may_be_elected_has_what_is_committed(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    for _ in range(STEPS):
        history.step()
        history.check()

    history.come_to_rest()

    history.check()
    partition = history.partition
    assert isinstance(partition.in_sync.state, CommittedIsr)
    assert set(partition.isr) == set(history.controller.registrations[history.key].isr) == {1, 2, 3}
    assert partition.partition_epoch == history.controller.registrations[history.key].partition_epoch
    assert partition.log.high_watermark == partition.log.log_end_offset
