"""What is found out of leaders before they are named: refused, or not known to be gone; and how often they are asked."""

from __future__ import annotations

import asyncio

import pytest

from broker.cluster.leader_probe import PROBE_INTERVAL_MS, PROBE_TIMEOUT_MS, PROBES_BURST, SILENT_PROBE_INTERVAL_MS, LeaderProbe
from tests.broker.cluster.fake_network import REFUSED, SILENT, Accepted, FakeNetwork, let_time_pass
from tests.support.clock import ManualClock

ME = 1


class World:
    """Nodes 1, 2 and 3 are registered."""

    def __init__(self, *answers: OSError | Accepted | None) -> None:
        self.clock = ManualClock()
        self.network = FakeNetwork(self.clock, *answers)
        self.refused: list[int] = []
        addresses = {node_id: (f"node-{node_id}", 9092) for node_id in (1, 2, 3)}
        self.check = LeaderProbe(self.network, self.clock, addresses.get, self.refused.append, node_id=ME)

    async def let_run(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def test_a_leader_whose_port_is_closed_is_told_of_before_the_answer() -> None:
    world = World(REFUSED)
    over = world.check.begin([2])
    assert over is not None and not over.is_done

    await world.let_run()

    assert over.is_done and world.refused == [2]


@pytest.mark.parametrize("answer", [Accepted(), OSError(113, "No route to host")], ids=["accepted", "no route"])
async def test_of_others_nothing_is_told(answer: OSError | Accepted) -> None:
    world = World(answer)
    over = world.check.begin([2])

    await world.let_run()

    assert over is not None and over.is_done and world.refused == []


async def test_an_answer_waits_no_longer_for_a_leader_that_is_silent() -> None:
    world = World(SILENT)
    over = world.check.begin([2])

    await let_time_pass(world.clock, PROBE_TIMEOUT_MS)

    assert over is not None and over.is_done and world.refused == []


async def test_a_leader_that_was_silent_delays_few_of_the_next_answers() -> None:
    world = World(SILENT)
    world.check.begin([2])
    await let_time_pass(world.clock, PROBE_TIMEOUT_MS)

    assert world.check.begin([2]) is None
    await let_time_pass(world.clock, SILENT_PROBE_INTERVAL_MS)

    assert world.check.begin([2]) is not None
    await world.check.close()


async def test_neither_this_broker_nor_one_that_nobody_knows_is_looked_at() -> None:
    world = World(REFUSED)

    assert world.check.begin([ME, -1, 7]) is None
    assert world.network.asked == []


async def test_answers_of_one_moment_share_a_look_at_each_leader() -> None:
    world = World(Accepted())
    first, second = world.check.begin([2, 3]), world.check.begin([2])
    await world.let_run()

    assert first is not None and first.is_done and second is not None and second.is_done
    assert [host for host, _, _ in world.network.asked] == ["node-2", "node-3"]


async def test_a_leader_that_dies_right_after_a_look_is_not_named_by_the_next_answer() -> None:
    world = World(Accepted(), REFUSED)
    world.check.begin([2])
    await world.let_run()

    over = world.check.begin([2])
    await world.let_run()

    assert over is not None and over.is_done and world.refused == [2]


async def test_a_flood_of_answers_becomes_no_flood_of_connections() -> None:
    world = World(Accepted())
    for _ in range(PROBES_BURST + 50):
        world.check.begin([2])
        await world.let_run()
    assert len(world.network.asked) == PROBES_BURST
    assert world.check.begin([2]) is None

    await let_time_pass(world.clock, PROBE_INTERVAL_MS)
    assert world.check.begin([2]) is not None
    await world.let_run()

    assert world.check.begin([2]) is None
    assert len(world.network.asked) == PROBES_BURST + 1
