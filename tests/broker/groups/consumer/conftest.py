"""What tests of long computations share."""

from __future__ import annotations

import pytest

from broker.groups.consumer import jobs


@pytest.fixture
def one_piece_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still on a ManualClock, so a slice would never be over."""
    monkeypatch.setattr(jobs, "SLICE_US", 0)
