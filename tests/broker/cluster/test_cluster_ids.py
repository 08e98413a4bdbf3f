"""Whether this node belongs to another cluster than its quorum: a majority of the voters decides, and nothing less."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from broker.cluster.cluster_ids import ASK_AGAIN_MS, ClusterIdCheck
from broker.quorum.voters import Address
from tests.support.clock import ManualClock

ONE, TWO = ("one", 9093), ("two", 9093)


async def turns_of_the_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Room:
    """Node 3 of three voters. `told` are the cluster ids that the others tell."""

    def __init__(self, told: Mapping[Address, str]) -> None:
        self.told = told
        self.asked_count = 0
        self.reasons: list[str] = []
        self.clock = ManualClock()
        self.check = ClusterIdCheck("mine", self.clock, lambda: ([ONE, TWO], 3), self.ask, self.reasons.append)

    async def ask(self, addresses: list[Address]) -> Mapping[Address, str]:
        assert addresses == [ONE, TWO]
        self.asked_count += 1
        return self.told


async def test_a_majority_of_one_other_cluster_ends_this_node() -> None:
    room = Room({ONE: "theirs", TWO: "theirs"})

    room.check.begin()
    await turns_of_the_loop()

    (reason,) = room.reasons
    assert "to cluster theirs (one:9093, two:9093)" in reason and "barnabas format -t theirs" in reason


@pytest.mark.parametrize("told", [{ONE: "theirs"}, {ONE: "theirs", TWO: "mine"}, {ONE: "theirs", TWO: "another"}])
async def test_less_does_not_end_it_and_is_told_once_and_looked_at_again(
    told: Mapping[Address, str], caplog: pytest.LogCaptureFixture
) -> None:
    room = Room(told)

    for _ in range(3):
        room.check.begin()
        await turns_of_the_loop()
        room.clock.advance(ASK_AGAIN_MS)
        await turns_of_the_loop()

    assert room.reasons == [] and room.asked_count == 4
    assert caplog.text.count("the voter at one:9093 belongs to cluster theirs, this node to cluster mine") == 1
    room.told = {ONE: "theirs", TWO: "theirs"}
    room.clock.advance(ASK_AGAIN_MS)
    await turns_of_the_loop()
    assert len(room.reasons) == 1


async def test_voters_of_the_same_cluster_are_asked_once() -> None:
    room = Room({ONE: "mine", TWO: "mine"})

    room.check.begin()
    await turns_of_the_loop()
    room.clock.advance(ASK_AGAIN_MS)
    await turns_of_the_loop()

    assert (room.reasons, room.asked_count) == ([], 1)
