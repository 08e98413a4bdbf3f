"""What tests of long jobs share."""

from __future__ import annotations

import pytest

from broker.loop import job


@pytest.fixture
def one_step_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still on a ManualClock, so a slice would never be over."""
    monkeypatch.setattr(job, "SLICE_US", 0)
