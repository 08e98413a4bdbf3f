"""A short attack campaign: whatever is thrown at it, the broker serves on, lets go of what it held, and has nothing to log a traceback for.

Timings are printed by `make attack`, and never asserted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.attack.attacks import ATTACKS, STRANGERS, Attack
from tests.attack.campaign import FULL_SECONDS, Campaign, Door, Plan
from tests.attack.report import RETURNED_MB, Row

pytestmark = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="reads the broker's state from /proc, as Linux has it")

QUICK = [attack for attack in ATTACKS if attack.is_quick]
QUICK_STRANGERS = [attack for attack in STRANGERS if attack.is_quick]
OF_THE_LOGGED_IN = [attack for attack in QUICK if attack.name in ("dribble", "other-protocols", "pipelined-leaves", "mutations")]
PLAN = Plan(seed=8, scale=0.02, attack_seconds=10.0, settle_s=60.0, is_shared=True)


@pytest.mark.parametrize(
    ("door", "attacks"), [(Door.OPEN, QUICK), (Door.LOGGED_IN, OF_THE_LOGGED_IN), (Door.STRANGERS, QUICK_STRANGERS)], ids=list(Door)
)
def test_the_broker_withstands_a_short_campaign(tmp_path: Path, door: Door, attacks: list[Attack]) -> None:
    rows = list(Campaign(tmp_path, replace(PLAN, door=door), attacks).run())

    assert {row.name: row.faults for row in rows if row.faults} == {}
    assert all(row.answered + row.closed + row.silent for row in rows), "an attack sent nothing"


def test_a_full_campaign_waits_for_more_than_that_memory_is_no_fault() -> None:
    """It ended its wait at 20 MB above the start, and every figure of memory a minute after was just below that."""
    full, short = (Plan.of_length(seconds, len(ATTACKS), seed=8) for seconds in (FULL_SECONDS, FULL_SECONDS / 30))

    assert full.settled_mb < RETURNED_MB / 2
    assert short.settled_mb == RETURNED_MB


def test_a_broker_that_gives_way_is_found(tmp_path: Path) -> None:
    """The campaign itself can fail: an attack that kills its target is told as such."""
    lethal = Attack("lethal", lambda attacker: attacker.broker.kill())

    (row,) = Campaign(tmp_path, PLAN, [lethal]).run()

    assert isinstance(row, Row)
    assert "serves no longer" in row.faults
