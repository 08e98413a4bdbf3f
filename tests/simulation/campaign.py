"""Many seeds on all cores, and what they came to: `python -m tests.simulation`, `make simulate`, and the tests of this folder.

Each process runs a share of the seeds; a seed's outcome depends on nothing but the seed and the code.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.world import Outcome, World, simulate

ROOT = Path(__file__).parents[2]
LINES_SHOWN = 60
EVIDENCE_CHARACTERS_MAX = 2_000
SEEDS_MORE = 8
"""Seeds that are run at a time where those before have not reached everything."""


@dataclass(slots=True)
class Totals:
    """What a campaign came to so far."""

    seeds_count: int = 0
    virtual_s: float = 0.0
    operations_count: int = 0
    profiles: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    covered: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seeds_count += 1
        self.virtual_s += outcome.virtual_s
        self.operations_count += outcome.operations_count
        self.profiles[outcome.profile] += 1
        self.faults.update(outcome.faults)
        self.covered.update(outcome.covered)
        if outcome.findings:
            self.failures.append(outcome)


def replay_command(seed: int, options: str = "") -> str:
    return f"python -m tests.simulation{options} --seed {seed} --trace"


def describe(outcome: Outcome) -> str:
    """A failed seed: what was found, the end of its trace, and how to see all of it."""
    lines = [f"seed {outcome.seed} ({outcome.profile}) failed after {outcome.virtual_s:.3f} virtual seconds"]
    for anomaly, evidence in outcome.findings.items():
        lines.append(f"  {anomaly}: {len(evidence)}, first {str(evidence[:3])[:EVIDENCE_CHARACTERS_MAX]}")
    lines += ["  …", *outcome.lines[-LINES_SHOWN:], f"replay it with: {replay_command(outcome.seed, outcome.options)}"]
    return "\n".join(lines)


def run_seeds(seeds: Iterable[int], *, processes_count: int | None = None, run: Callable[[int], Outcome] = simulate) -> Iterator[Outcome]:
    """The outcomes as they come. Each process is new (spawned) and is replaced after a while, so that nothing piles up in it."""
    count = processes_count or os.cpu_count() or 1
    if count == 1:
        yield from map(run, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(count, maxtasksperchild=100) as pool:
        yield from pool.imap_unordered(run, seeds)


def run_until_reached(wanted: frozenset[str], *, at_least: int, at_most: int, run: Callable[[int], Outcome] = simulate) -> list[Outcome]:
    """The outcomes of the first `at_least` seeds, and of more as long as something of `wanted` was not reached: a change of the brokers
    makes other worlds of the same seeds."""
    outcomes = list(run_seeds(range(at_least), run=run))
    for first in range(at_least, at_most, SEEDS_MORE):
        if reached_by(outcomes) >= wanted:
            break
        outcomes += run_seeds(range(first, min(first + SEEDS_MORE, at_most)), run=run)
    return outcomes


_known: dict[tuple[type[World], int], Outcome] = {}


def remember(make: type[World], outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The outcomes, which `outcome_of` knows from now on."""
    remembered = list(outcomes)
    _known.update({(make, outcome.seed): outcome for outcome in remembered})
    return remembered


def outcome_of(seed: int, make: type[World] = World) -> Outcome:
    """What the seed comes to. It is run once in this process, and not at all if a campaign has run it."""
    if (make, seed) not in _known:
        remember(make, [simulate(seed, make=make)])
    return _known[make, seed]


def reached_by(outcomes: Iterable[Outcome]) -> set[str]:
    """The kinds of faults that struck, and what was covered."""
    return {what for outcome in outcomes for what in (*outcome.faults, *outcome.covered)}


def hash_in_fresh_process(seed: int, *, hash_seed: int, options: str = "") -> str:
    """The trace hash of `seed`, run by a new interpreter whose sets are ordered otherwise."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-m", "tests.simulation", *options.split(), "--seed", str(seed), "--hash"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=True)
    return done.stdout.strip()


def report(totals: Totals, elapsed_s: float) -> str:
    """The figures of a campaign."""
    minutes = max(elapsed_s / 60, 1e-9)
    return "\n".join(
        (
            f"{totals.seeds_count} seeds in {elapsed_s:.0f} s: {totals.seeds_count / minutes:.0f} a minute",
            f"{totals.virtual_s:.0f} virtual seconds, {totals.operations_count} operations, {totals.faults.total()} faults",
            "profiles: " + ", ".join(f"{name} {count}" for name, count in sorted(totals.profiles.items())),
            "faults: " + ", ".join(f"{name} {count}" for name, count in sorted(totals.faults.items())),
            "reached: " + (", ".join(f"{name} {count}" for name, count in sorted(totals.covered.items())) or "nothing beyond the usual"),
            f"failed seeds: {', '.join(str(outcome.seed) for outcome in totals.failures) or 'none'}",
        )
    )


def run_campaign(seeds: Iterable[int], say: Callable[[str], None], run: Callable[[int], Outcome] = simulate) -> Totals:
    """Run the seeds on all cores and say what fails when it does, and figures now and then."""
    totals = Totals()
    began = said = time.monotonic()
    for outcome in run_seeds(seeds, run=run):
        totals.add(outcome)
        if outcome.findings:
            say(describe(outcome))
        if time.monotonic() - said > 60:
            said = time.monotonic()
            say(f"… {totals.seeds_count} seeds, {len(totals.failures)} failed")
    say(report(totals, time.monotonic() - began))
    return totals
