"""A short kill campaign; the long one is `python -m tests.pipeline.campaign`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.campaign import run
from tests.pipeline.spark_support import needs_java

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), needs_java()]

SEED = 1912


def test_kills_of_driver_and_broker_leave_every_record_once(tmp_path: Path) -> None:
    result = run(driver_kills=2, broker_kills=1, seed=SEED, directory=tmp_path)

    assert result.anomalies == []
    assert (result.driver_kills, result.broker_kills) == (2, 1)
    assert result.records > 0
