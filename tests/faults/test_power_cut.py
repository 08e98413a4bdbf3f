"""Power cuts with flush.messages=1: what was acked is on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import power_cut
from tests.support.kafka import kafka_jars
from tests.support.power import missing_power_cut
from tests.support.requirements import needs

ROUNDS = 5  # each cuts the power twice: under load, and again when idle
SEED = 30


@pytest.mark.timeout(600)
@needs(missing_power_cut())
def test_nothing_acked_is_lost_over_power_cuts(tmp_path: Path) -> None:
    kafka_jars()

    results = power_cut.run(ROUNDS, SEED, tmp_path)

    assert [result.anomalies for result in results] == [{}] * ROUNDS
