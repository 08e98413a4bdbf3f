"""Real aiokafka clients in simulated worlds: a few seeds, each with faults, in which they must see no error and lose nothing."""

from __future__ import annotations

import pytest

from tests.simulation.campaign import describe
from tests.simulation.stock_world import StockWorld
from tests.simulation.world import simulate

SEEDS_COUNT = 12
OPERATIONS_MIN = 30


@pytest.mark.parametrize("seed", range(SEEDS_COUNT))
def test_stock_clients_get_through_faults_of_their_broker(seed: int) -> None:
    """Idempotent producers, a consumer and a group, through kills, power cuts, cuts and pauses."""
    outcome = simulate(seed, make=StockWorld)

    assert not outcome.findings, describe(outcome)
    assert outcome.operations_count > OPERATIONS_MIN
    assert outcome.faults
