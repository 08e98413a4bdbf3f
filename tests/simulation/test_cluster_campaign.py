"""Simulated clusters in `make test`: seeds that keep every promise, twice the same trace, and ablations that are noticed.

BARNABAS_SIMULATION_SEEDS says how many seeds run, and more follow until everything was reached; one in ten has five nodes.
`make simulate NODES=3 SEEDS=N` runs more with a report.
"""

from __future__ import annotations

import os
import warnings
from functools import partial

import pytest

from tests.simulation import ablation_set
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
from tests.simulation.cluster_ablations import ABLATION_SET, ABLATIONS, BROKEN_BY, KEPT_SEEDS, WORLDS
from tests.simulation.cluster_nemesis import CLUSTER_KINDS
from tests.simulation.cluster_world import ClusterWorld, FiveNodesWorld
from tests.simulation.directed_worlds import REACHED_THE_END
from tests.simulation.shapes import SHAPES
from tests.simulation.world import simulate

pytestmark = pytest.mark.timeout(1_200)  # hundreds of seeds beside another lane, on a slow machine

SEEDS_COUNT = int(os.environ.get("BARNABAS_SIMULATION_SEEDS", "30"))
SEEDS_MAX = 200  # until everything was reached
FIVE_NODES_SHARE = 0.1
REPEATED = range(0, SEEDS_COUNT, 100)

KEPT = {
    3: "a snapshot that was fetched was read past the node's disk, and a missing one was an empty state",
    6: "a node whose start came from a snapshot waited for the next commit",
    700019: "replicas differed by a hole that a power cut had left: the world was wrong",
    1000362: "a consumer believed a node that was behind: the world was wrong",
}
"""Seeds that found something once, and what. They stay even if a change of the harness makes other worlds of them."""

REACHED = frozenset(
    {
        "reassignment", "reassignment cancelled", "voter added", "voter removed", "preferred election", "snapshot fetched",
        "crash proven", "replica truncated", "unclean election", "eligible leader elected", "voters in the log", "told of a nearer replica",
        "fetch from a follower", "log compacted", "topic made anew", "classic group converted", "consumer group converted",
        "records deleted", "began within a batch", "reassignment away from a broker that is down", "replica wiped", "replica copied",
        "silence proven", "slow steps",
        *(shape.name for shape in SHAPES),
    }
)  # fmt: skip
"""What a campaign has to reach, beside its faults."""


@pytest.mark.timeout(1200)  # it shares the cores with what else runs
def test_no_seed_breaks_a_promise() -> None:
    five_count = round(SEEDS_COUNT * FIVE_NODES_SHARE)
    with_five = list(run_seeds(range(five_count), run=partial(simulate, make=FiveNodesWorld)))
    wanted = REACHED.union(CLUSTER_KINDS) - reached_by(with_five)
    at_least = SEEDS_COUNT - five_count
    with_three = run_until_reached(wanted, at_least=at_least, at_most=SEEDS_MAX, run=partial(simulate, make=ClusterWorld))
    outcomes = [*with_five, *remember(ClusterWorld, with_three)]

    failed = [describe(outcome) for outcome in outcomes if outcome.findings]
    assert not failed, "\n\n".join(failed[:3])
    assert wanted <= reached_by(outcomes), "a kind of fault never came, or a part of the product was never reached"
    assert sum(outcome.operations_count for outcome in outcomes) > 50 * len(outcomes), "so little was done that nothing is shown"


@pytest.mark.parametrize("seed", REPEATED)
def test_a_seed_gives_the_same_trace_in_another_process(seed: int) -> None:
    """After other seeds here, first there, and with sets in another order."""
    outcome = simulate(seed, make=ClusterWorld)

    assert outcome.trace_hash == hash_in_fresh_process(seed, hash_seed=seed + 1, options=outcome.options), replay_command(
        seed, outcome.options
    )


@pytest.mark.parametrize("seed", KEPT)
def test_what_a_seed_found_stays_mended(seed: int) -> None:
    outcome = outcome_of(seed, ClusterWorld)

    assert not outcome.findings, describe(outcome)


@pytest.mark.parametrize("name", ABLATIONS)
def test_a_missing_safeguard_is_noticed(name: str) -> None:
    safe = outcome_of(KEPT_SEEDS[name], ABLATION_SET.world_of(name))

    assert safe.findings == {}, "the seed fails with the safeguard too"
    assert name not in WORLDS or REACHED_THE_END in safe.covered, "the script has lost its way: nothing is shown by the seed"
    if ABLATION_SET.is_found(name, ABLATION_SET.run_with(name, KEPT_SEEDS[name])):
        return

    found = ABLATION_SET.find_seed(name)  # the brokers have changed, and with them what a seed comes to

    assert found is not None, f"none of {ablation_set.SEEDS_MAX} seeds finds one of {sorted(BROKEN_BY[name])}"
    warnings.warn(f"seed {KEPT_SEEDS[name]} does not show it any more: keep {found} for {name}", stacklevel=1)
