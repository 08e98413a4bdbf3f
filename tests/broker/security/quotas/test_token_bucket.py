"""TokenBucketTest's cases, and the throttle times of ControllerMutationQuotaManagerTest."""

from __future__ import annotations

import pytest

from broker.security.quotas.rate import THROTTLE_TIME_MAX_MS
from broker.security.quotas.token_bucket import TokenBucket

LIMIT = 5.0  # with 10 windows of 2 s the burst is 100


@pytest.fixture
def bucket() -> TokenBucket:
    return TokenBucket(2000, 10)


@pytest.mark.parametrize("now_ms", [0, 1_700_000_000_000])
def test_tokens_are_taken_and_come_back_with_time(bucket: TokenBucket, now_ms: int) -> None:
    assert bucket.tokens(LIMIT, now_ms) == 100

    bucket.record(60, LIMIT, now_ms)
    assert bucket.tokens(LIMIT, now_ms) == 40

    bucket.record(5, LIMIT, now_ms + 2000)
    assert bucket.tokens(LIMIT, now_ms + 2000) == 45

    bucket.record(60, LIMIT, now_ms + 4000)
    assert bucket.tokens(LIMIT, now_ms + 4000) == -5


def test_tokens_that_are_put_back_fill_it_to_the_burst_only(bucket: TokenBucket) -> None:
    bucket.record(-60, LIMIT, 0)
    assert bucket.tokens(LIMIT, 0) == 100

    bucket.record(60, LIMIT, 2000)
    assert bucket.tokens(LIMIT, 2000) == 40

    bucket.record(-60, LIMIT, 4000)
    assert bucket.tokens(LIMIT, 4000) == 100


@pytest.mark.parametrize(("missing", "throttle_time_ms"), [(0, 0), (5, 500), (10, 1000)])
def test_throttle_time_is_that_of_the_missing_tokens(missing: int, throttle_time_ms: int) -> None:
    bucket = TokenBucket(1000, 10)
    bucket.record(100 + missing, 10, 0)

    assert bucket.throttle_time_ms(10, 0) == throttle_time_ms


def test_lower_limit_lowers_what_is_kept(bucket: TokenBucket) -> None:
    assert bucket.tokens(2.0**63, 0) == 20 * 2.0**63

    assert bucket.tokens(LIMIT, 0) == 100


def test_throttle_time_has_a_bound(bucket: TokenBucket) -> None:
    bucket.record(1e12, LIMIT, 0)

    assert bucket.throttle_time_ms(LIMIT, 0) == THROTTLE_TIME_MAX_MS
