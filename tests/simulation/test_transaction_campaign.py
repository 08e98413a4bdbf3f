"""Simulated worlds with transactions in `make test`: seeds that keep every promise, twice the same trace, and ablations that are noticed.

BARNABAS_SIMULATION_SEEDS says how many seeds run: a fifteenth of that number on one broker, more until everything was reached, and
half as many on clusters. `make simulate SIMULATE_ARGS=--transactions NODES=3 SEEDS=N` runs more with a report.
"""

from __future__ import annotations

import os
import warnings
from functools import partial

import pytest

from tests.simulation.ablation_set import SEEDS_MAX
from tests.simulation.campaign import (
    describe,
    hash_in_fresh_process,
    outcome_of,
    reached_by,
    remember,
    replay_command,
    run_seeds,
    run_until_reached,
)
from tests.simulation.directed_worlds import REACHED_THE_END
from tests.simulation.transaction_ablations import ABLATION_SET, ABLATIONS, BROKEN_BY, KEPT_SEEDS
from tests.simulation.transaction_cluster import LeaderlessWorld, TransactionClusterWorld
from tests.simulation.transaction_world import TransactionWorld
from tests.simulation.world import World, simulate

pytestmark = pytest.mark.timeout(1_200)  # beside another lane, on a slow machine

SEEDS_COUNT = int(os.environ.get("BARNABAS_SIMULATION_SEEDS", "150")) // 15
CLUSTER_SHARE = 0.5

KEPT: dict[int, tuple[type[World], str]] = {
    74: (TransactionWorld, "a repeated marker ended the question of a later transaction: INVALID_TXN_STATE for its first batch"),
    920070: (
        TransactionClusterWorld,
        "a broker that a power cut left without its metadata log did not follow the controller it remembered",
    ),
    920076: (
        TransactionClusterWorld,
        "a transaction of a coordinator whose clock was half an hour ahead stayed open when another broker took over",
    ),
    930104: (
        TransactionClusterWorld,
        "a repeated marker ended a later transaction whose PREPARE a power cut took (KAFKA-17754): the watch thought it was expected",
    ),
}
"""Seeds that found something once, and what. They stay even if a change of the harness makes other worlds of them."""

REACHED = frozenset(
    {
        "aborted by the coordinator", "late EndTxn", "late Produce", "late TxnOffsetCommit", "late AddPartitionsToTxn", "late marker",
        "late marker refused", "producer id replaced", "transaction.version changed", "transactional client fenced", "zombie",
    }
)  # fmt: skip
"""What a campaign has to reach, beside its faults."""


def test_no_seed_breaks_a_promise() -> None:
    with_one = run_until_reached(REACHED, at_least=SEEDS_COUNT, at_most=10 * SEEDS_COUNT, run=partial(simulate, make=TransactionWorld))
    cluster_seeds = range(round(SEEDS_COUNT * CLUSTER_SHARE))
    with_three = run_seeds(cluster_seeds, run=partial(simulate, make=TransactionClusterWorld))
    outcomes = [*remember(TransactionWorld, with_one), *remember(TransactionClusterWorld, with_three)]

    failed = [describe(outcome) for outcome in outcomes if outcome.findings]
    assert not failed, "\n\n".join(failed[:3])
    assert reached_by(outcomes) >= REACHED, "a part of the product was never reached"
    assert sum(outcome.operations_count for outcome in outcomes) > 100 * SEEDS_COUNT, "so little was done that nothing is shown"


@pytest.mark.parametrize("kind", [TransactionWorld, TransactionClusterWorld])
def test_a_seed_gives_the_same_trace_in_another_process(kind: type[World]) -> None:
    outcome = simulate(0, make=kind)

    assert outcome.trace_hash == hash_in_fresh_process(0, hash_seed=1, options=outcome.options), replay_command(0, outcome.options)


@pytest.mark.parametrize("seed", KEPT)
def test_what_a_seed_found_stays_mended(seed: int) -> None:
    kind, _ = KEPT[seed]
    outcome = outcome_of(seed, kind)

    assert not outcome.findings, describe(outcome)


@pytest.mark.parametrize("name", ABLATIONS)
def test_a_missing_safeguard_is_noticed(name: str) -> None:
    safe = outcome_of(KEPT_SEEDS[name], ABLATION_SET.world_of(name))

    assert safe.findings == {}, "the seed fails with the safeguard too"
    assert ABLATION_SET.world_of(name) is not LeaderlessWorld or REACHED_THE_END in safe.covered, "the script has lost its way"
    if ABLATION_SET.is_found(name, ABLATION_SET.run_with(name, KEPT_SEEDS[name])):
        return

    found = ABLATION_SET.find_seed(name)  # the broker has changed, and with it what a seed comes to

    assert found is not None, f"none of {SEEDS_MAX} seeds finds one of {sorted(BROKEN_BY[name])}"
    warnings.warn(f"seed {KEPT_SEEDS[name]} does not show it any more: keep {found} for {name}", stacklevel=1)
