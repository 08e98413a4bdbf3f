"""Simulated worlds in `make test`: seeds that keep every promise, twice the same trace, and ablations that are noticed.

BARNABAS_SIMULATION_SEEDS says how many seeds run; `make simulate SEEDS=N` runs more of them with a report.
"""

from __future__ import annotations

import os
import warnings

import pytest

from tests.simulation.ablation_set import SEEDS_MAX
from tests.simulation.ablations import ABLATION_SET, ABLATIONS, BROKEN_BY, KEPT_SEEDS
from tests.simulation.campaign import describe, hash_in_fresh_process, replay_command, run_seeds
from tests.simulation.nemesis import COMPACTION_FAULTS, KINDS
from tests.simulation.world import simulate

pytestmark = pytest.mark.timeout(1_200)  # hundreds of seeds beside another lane, on a slow machine

SEEDS_COUNT = int(os.environ.get("BARNABAS_SIMULATION_SEEDS", "150"))
REPEATED_SHARE = 0.01  # of the seeds, which run a second time in a fresh process

KEPT = {
    10: "a power cut took the log directory itself, whose name was never synchronised",
    38: "OffsetFetch answered without acknowledged commits until the first flush after a restart",
    393: "a segment that was rolled during a flush was never synchronised",
    447: "the same, with another segment",
}
"""Seeds that found something once, and what. They stay even if a change of the harness makes other worlds of them."""


@pytest.mark.timeout(1200)  # it shares the cores with what else runs
def test_no_seed_breaks_a_promise() -> None:
    outcomes = list(run_seeds(range(SEEDS_COUNT)))

    failed = [describe(outcome) for outcome in outcomes if outcome.findings]
    assert not failed, "\n\n".join(failed[:3])
    if SEEDS_COUNT >= 150:
        assert {kind for outcome in outcomes for kind in outcome.faults} == {*KINDS, *COMPACTION_FAULTS}, "a kind of fault never came"
        assert {what for outcome in outcomes for what in outcome.covered} >= {"log compacted", "slow steps"}, (
            "nothing was ever compacted, or nothing interrupted"
        )
        covered = {what for outcome in outcomes for what in outcome.covered}
        assert covered >= {"classic group converted", "consumer group converted"}, "no group ever changed its protocol"
        assert any("groups loaded as they were written" in outcome.covered for outcome in outcomes), "no group was ever loaded"
        assert sum(outcome.operations_count for outcome in outcomes) > 100 * SEEDS_COUNT, "so little was done that nothing is shown"


@pytest.mark.parametrize("seed", range(0, SEEDS_COUNT, round(1 / REPEATED_SHARE)))
def test_a_seed_gives_the_same_trace_in_another_process(seed: int) -> None:
    """After other seeds here, first there, and with sets in another order."""
    assert simulate(seed).trace_hash == hash_in_fresh_process(seed, hash_seed=seed + 1), replay_command(seed)


@pytest.mark.parametrize("seed", KEPT)
def test_what_a_seed_found_stays_mended(seed: int) -> None:
    outcome = simulate(seed)

    assert not outcome.findings, describe(outcome)


@pytest.mark.parametrize("name", ABLATIONS)
def test_a_missing_safeguard_is_noticed(name: str) -> None:
    assert simulate(KEPT_SEEDS[name]).findings == {}, "the seed fails with the safeguard too"
    if ABLATION_SET.is_found(name, ABLATION_SET.run_with(name, KEPT_SEEDS[name])):
        return

    found = ABLATION_SET.find_seed(name)  # the broker has changed, and with it what a seed comes to

    assert found is not None, f"none of {SEEDS_MAX} seeds finds one of {sorted(BROKEN_BY[name])}"
    warnings.warn(f"seed {KEPT_SEEDS[name]} does not show it any more: keep {found} for {name}", stacklevel=1)
