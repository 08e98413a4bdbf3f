"""A short run of the fuzzer: every API of both listeners, every kind of input; the broker answers or closes, keeps nothing, and has nothing
to log a traceback for.

Timings are printed by `make fuzz`, and never asserted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.apis import DECLARED
from tests.fuzz.inputs import Density, Stage, Strike
from tests.fuzz.report import lines_of
from tests.fuzz.run import Plan, Run

pytestmark = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="reads the broker's state from /proc, as Linux has it")

SEED = 11
DENSITY = Density(versions_max=2, number_share=0.5, wide_share=0.05)
INPUTS_MIN = {Stage.ALL: 30_000, Stage.ORDERS: 7_000}


@pytest.mark.parametrize("stage", Stage)
def test_the_broker_withstands_a_round_of_every_input(tmp_path: Path, stage: Stage) -> None:
    report = Run(tmp_path, stage, Plan(SEED, DENSITY)).run()

    assert report.faults == [], "\n".join(lines_of(report))
    assert report.findings.inputs_count >= INPUTS_MIN[stage]
    assert {strike for strike, _ in report.findings.outcomes} >= set(Strike) - {Strike.WIDE}
    assert report.bystander_rounds >= 1


def test_a_broker_that_gives_way_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge itself can fail a broker: here it takes each answer for one to a request of another API."""
    few = Density(versions_max=1, number_share=0.0, wide_share=0.0, mutated=0)
    run = Run(tmp_path, Stage.ORDERS, Plan(SEED, few, with_bystanders=False))
    answered = {key: DECLARED[(key + 1) if key + 1 in DECLARED else 3] for key in DECLARED}
    monkeypatch.setattr("tests.fuzz.sender.DECLARED", answered)

    assert any("its answer" in fault for fault in run.run().faults)
