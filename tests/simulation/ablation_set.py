"""AblationSet: safeguards that can be taken out, and the seeds whose worlds then break a promise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.simulation.world import Outcome, World, simulate

SEEDS_MAX = 500


@dataclass(frozen=True)
class AblationSet:
    """Everything goes by the name of the safeguard. `broken_by` has the findings of which one shows that it is missing. `worlds` has those
    that need another world than `usual_world`."""

    ablations: Mapping[str, Callable[[], AbstractContextManager[None]]]
    broken_by: Mapping[str, frozenset[str]]
    usual_world: type[World]
    worlds: Mapping[str, type[World]]

    def world_of(self, name: str) -> type[World]:
        return self.worlds.get(name, self.usual_world)

    def run_with(self, name: str, seed: int) -> Outcome:
        """One seed without the safeguard `name`."""
        with self.ablations[name]():
            return simulate(seed, make=self.world_of(name))

    def is_found(self, name: str, outcome: Outcome) -> bool:
        return not self.broken_by[name].isdisjoint(outcome.findings)

    def find_seed(self, name: str, seeds: Iterable[int] = range(SEEDS_MAX)) -> int | None:
        """The first seed that shows that the safeguard is missing."""
        return next((seed for seed in seeds if self.is_found(name, self.run_with(name, seed))), None)
