"""A short crash campaign in every test run; `python -m tests.faults.crash` runs long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import crash
from tests.support.kafka import kafka_jars

ROUNDS = 5
SEED = 20


@pytest.mark.timeout(600)
def test_nothing_acked_is_lost_or_doubled_over_kills(tmp_path: Path) -> None:
    """Three librdkafka and one Java idempotent producers, a committing group, kill -9 at random moments."""
    kafka_jars()

    results = crash.run(ROUNDS, SEED, tmp_path)

    assert [result.anomalies for result in results] == [{}] * ROUNDS
