"""Ten kills of the long campaign, `python -m tests.pipeline.sink_campaign`: the points around the decision, with one new driver."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.pipeline.sink_campaign import faults as drawn
from tests.pipeline.sink_campaign.campaign import run
from tests.pipeline.sink_campaign.faults import BROKER, HANG, PYTHON, STOP, TWICE, ZOMBIE, Fault
from tests.pipeline.sink_campaign.gate_keeper import GateKeeper
from tests.pipeline.sink_campaign.sparks import LocalSpark
from tests.pipeline.sink_campaign.world import World, start_server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = 30
KILLS = [
    [(TWICE, "commit:decided", 0), (PYTHON, "plan:adopted", 2)],
    [(TWICE, "commit:ended", 1), (BROKER, "plan:ended", 0)],
    [(STOP, "task:flushed", 1)],
    [(PYTHON, "commit:ended", 0)],
    [(HANG, "commit:deciding", 0)],
    [(ZOMBIE, "commit:deciding", 2)],
    [(PYTHON, "task:written", 0), (PYTHON, "plan:end", 0)],
]
"""A fault, its point, and the partitions of the shuffle when the query starts for it."""


def test_ten_kills_around_the_decision_leave_each_row_once(tmp_path: Path) -> None:
    rounds = [[Fault(kind, point, 0, partitions, 0.0, ROWS) for kind, point, partitions in kills] for kills in KILLS]
    server = start_server(tmp_path / "server", is_kafka=False, transaction_version=None)
    keeper = GateKeeper()
    world = World(server)
    try:
        spark = LocalSpark(tmp_path, server.bootstrap, keeper.port, {}, random.Random(0))
        campaign, anomaly = run(world, keeper, spark.start_driver, rounds, settle_every=len(rounds))
    finally:
        world.close()
        keeper.close()
        server.kill()

    assert anomaly is None, "\n".join([anomaly, *list(keeper.trace)[-60:]])
    assert campaign.killed.total() == 10


def test_a_second_fault_is_at_a_point_that_the_first_one_leads_to() -> None:
    """query.stop() waits for the commit: no recovery completes it, and a fault there would be waited for in vain."""
    rounds = drawn.random_faults(random.Random(0), 2000, kinds=drawn.CLUSTER_KINDS)
    pairs = [faults for faults in rounds if len(faults) == 2]

    assert sum(map(len, rounds)) == 2000
    assert {first.kind for first, second in pairs if second.point in drawn.ONLY_AFTER_A_DECISION} == set(drawn.LEAVES_A_DECISION)
    assert all(fault.point.startswith("task:") for faults in rounds for fault in faults if fault.kind == drawn.EXECUTOR)
