"""The test of significance, on distributions whose truth is known."""

from __future__ import annotations

import math
import random

import pytest

from bench.comparison import PAIRS_MIN, Interval, Verdict, bootstrap_interval, judge, pair_ratios

NOISE = 0.05  # standard deviation of a run, as a share of its value: an ordinary hour of a virtual machine
SITTINGS = 200
RESAMPLES = 400

pytestmark = pytest.mark.long("hundreds of sittings")


def sitting(randomness: random.Random, *, slowdown: float, pairs: int = PAIRS_MIN) -> list[float]:
    """The ratios of pairs whose second is `slowdown` times as slow in truth."""
    return [slowdown * math.exp(randomness.gauss(0, NOISE * math.sqrt(2))) for _ in range(pairs)]


def verdicts(*, slowdown: float, pairs: int = PAIRS_MIN) -> dict[Verdict, int]:
    """How often each verdict falls in many sittings."""
    randomness = random.Random(7)
    found = dict.fromkeys(Verdict, 0)
    for _ in range(SITTINGS):
        ratios = sitting(randomness, slowdown=slowdown, pairs=pairs)
        found[judge(bootstrap_interval(ratios, resamples=RESAMPLES), pairs)] += 1
    return found


def test_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    randomness = random.Random(3)
    intervals = [bootstrap_interval(sitting(randomness, slowdown=1.1), resamples=RESAMPLES) for _ in range(SITTINGS)]

    held = sum(interval.low <= 1.1 <= interval.high for interval in intervals) / SITTINGS

    assert 0.90 <= held <= 0.99


def test_interval_narrows_with_more_pairs() -> None:
    randomness = random.Random(3)
    few, many = (bootstrap_interval(sitting(randomness, slowdown=1.0, pairs=pairs)) for pairs in (10, 160))

    assert many.high - many.low < (few.high - few.low) / 2


def test_commit_that_changes_nothing_hardly_ever_loses() -> None:
    assert verdicts(slowdown=1.0)[Verdict.LOST] <= 0.01 * SITTINGS


def test_loss_within_the_tolerance_is_none() -> None:
    assert verdicts(slowdown=1.03)[Verdict.LOST] <= 0.05 * SITTINGS


def test_loss_of_a_quarter_is_nearly_always_seen_and_a_gain_as_well() -> None:
    assert verdicts(slowdown=1.25)[Verdict.LOST] >= 0.95 * SITTINGS
    assert verdicts(slowdown=1 / 1.25)[Verdict.GAINED] >= 0.95 * SITTINGS


def test_one_wild_run_does_not_decide() -> None:
    ratios = [1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 4.0]

    assert judge(bootstrap_interval(ratios), len(ratios)) is Verdict.SAME


def test_same_values_give_the_same_interval() -> None:
    ratios = sitting(random.Random(1), slowdown=1.0)

    assert bootstrap_interval(ratios) == bootstrap_interval(ratios)


def test_equal_runs_have_an_interval_of_one_point() -> None:
    assert bootstrap_interval([1.05] * 10) == Interval(1.05, 1.05, 1.05)


@pytest.mark.parametrize(("lower_is_better", "ratio"), [(True, 1.25), (False, 0.8)])
def test_above_one_is_worse_whichever_way_a_figure_counts(lower_is_better: bool, ratio: float) -> None:
    assert pair_ratios([100.0], [125.0], lower_is_better=lower_is_better) == [ratio]


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.031, 1.2, Verdict.LOST),
        (1.03, 1.2, Verdict.OPEN),
        (0.98, 1.02, Verdict.SAME),
        (0.9, 0.96, Verdict.GAINED),
        (0.9, 0.98, Verdict.OPEN),
    ],
)
def test_verdict_is_where_the_whole_interval_lies(low: float, high: float, verdict: Verdict) -> None:
    assert judge(Interval(low, (low + high) / 2, high), PAIRS_MIN) is verdict


def test_few_pairs_give_no_verdict() -> None:
    assert judge(Interval(2.0, 2.0, 2.0), PAIRS_MIN - 1) is Verdict.TOO_FEW
    assert judge(Interval(1.1, 1.2, 1.3), PAIRS_MIN, tolerance=0.2) is Verdict.OPEN
