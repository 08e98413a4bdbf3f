"""What a canary's samples are made of."""

from __future__ import annotations

from tests.attack.canary import with_left_out


def test_a_stall_counts_for_the_rounds_that_it_left_out() -> None:
    assert list(with_left_out([3, 20, 5], interval_ns=5)) == [3, 20, 15, 10, 5, 5]
