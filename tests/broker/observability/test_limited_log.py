"""A flood of like events costs a few lines and a count."""

import logging

import pytest

from broker.observability.limited_log import LimitedLog
from tests.support.clock import ManualClock


def test_lines_beyond_the_budget_are_counted_and_told_at_the_end_of_the_interval(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    limited = LimitedLog(logging.getLogger("test"), clock, lines_max=2, interval_ms=1_000)

    for number in range(5):
        limited.warning("connection refused", "refused client %d", number)
    clock.advance(1_000)

    assert caplog.messages == ["refused client 0", "refused client 1", "connection refused: 3 more lines were left out in the last 1 s"]


def test_kinds_have_budgets_of_their_own_and_a_new_one_each_interval(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    limited = LimitedLog(logging.getLogger("test"), clock, lines_max=1, interval_ms=1_000)

    limited.warning("a", "a1")
    limited.warning("b", "b1")
    clock.advance(1_000)
    limited.warning("a", "a2")

    assert caplog.messages == ["a1", "b1", "a2"]
