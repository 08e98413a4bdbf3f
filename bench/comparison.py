"""Decides from alternating runs whether one broker is slower than another: a bootstrap interval over the ratio of each pair of runs.

Pure: values in, a verdict out. A pair is two consecutive runs, so that the machine's speed at that hour cancels out.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

CONFIDENCE = 0.95
RESAMPLES = 10_000
PAIRS_MIN = 10
"""With fewer pairs an interval says little about the next sitting."""
TOLERANCE = 0.03
SEED = 1912


class Verdict(enum.Enum):
    """Where the interval lies. Only LOST fails a comparison."""

    LOST = "LOST"
    GAINED = "gained"
    SAME = "same"
    OPEN = "open"
    """The interval contains a limit: noise hides the answer. Take more pairs or longer rows."""
    TOO_FEW = "too few pairs"


@dataclass(frozen=True, slots=True)
class Interval:
    """Of the median ratio; above 1 means more."""

    low: float
    middle: float
    high: float


def pair_ratios(before: Sequence[float], after: Sequence[float], *, lower_is_better: bool) -> list[float]:
    """How many times worse the second value of each pair is. Above 1 is worse, for figures of either direction. All values are above 0."""
    assert len(before) == len(after) and all(value > 0 for value in (*before, *after)), "ratios of pairs that were measured"
    return [second / first if lower_is_better else first / second for first, second in zip(before, after, strict=True)]


def bootstrap_interval(
    ratios: Sequence[float], *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES, seed: int = SEED
) -> Interval:
    """The percentile interval of the median, by bootstrap: samples with replacement show how far the median moves by chance.

    It is the median, because a virtual machine's pauses make single runs two times slower. The same values give the same interval.
    """
    randomness = random.Random(seed)
    medians = sorted(median(randomness.choices(ratios, k=len(ratios))) for _ in range(resamples))
    tail = (1 - confidence) / 2
    return Interval(medians[int(tail * resamples)], median(ratios), medians[min(resamples - 1, int((1 - tail) * resamples))])


def judge(interval: Interval, pairs: int, *, tolerance: float = TOLERANCE) -> Verdict:
    """LOST when the whole interval is more than `tolerance` worse, GAINED when it is that much better, SAME when it is wholly between."""
    worse, better = 1 + tolerance, 1 / (1 + tolerance)
    if pairs < PAIRS_MIN:
        return Verdict.TOO_FEW
    if interval.low > worse:
        return Verdict.LOST
    if interval.high < better:
        return Verdict.GAINED
    return Verdict.SAME if better <= interval.low and interval.high <= worse else Verdict.OPEN
