"""The cases of ControllerMutationQuotaManagerTest (KIP-599)."""

from __future__ import annotations

import pytest

from broker.security.quotas.controller_mutation_quota import ControllerMutationQuota, ControllerMutationQuotaManager
from broker.security.quotas.quota_limits import QuotaScope
from broker.security.quotas.quota_metrics import QuotaMetric

NOW_MS = 1_700_000_000_000


@pytest.fixture
def manager() -> ControllerMutationQuotaManager:
    manager = ControllerMutationQuotaManager(window_ms=1000, windows_count=10)
    manager.set_limit(QuotaScope("ANONYMOUS", "test-client"), 10)
    return manager


def quota(manager: ControllerMutationQuotaManager, *, is_strict: bool, now_ms: int = NOW_MS) -> ControllerMutationQuota:
    return manager.quota_of("ANONYMOUS", "test-client", now_ms, is_strict=is_strict)


def test_a_strict_quota_refuses_what_comes_when_no_tokens_are_left(manager: ControllerMutationQuotaManager) -> None:
    strict = quota(manager, is_strict=True)
    assert strict.record(90, NOW_MS)
    assert strict.record(90, NOW_MS)  # as long as there are tokens, any number is accepted
    assert (strict.is_exceeded, strict.throttle_time_ms(NOW_MS)) == (False, 0)

    assert not strict.record(90, NOW_MS)

    assert strict.is_exceeded
    assert strict.throttle_time_ms(NOW_MS) == 8000
    assert strict.throttle_time_ms(NOW_MS + 5000) == 3000
    assert strict.throttle_time_ms(NOW_MS + 9000) == 0


def test_a_permissive_quota_accepts_all_and_throttles(manager: ControllerMutationQuotaManager) -> None:
    permissive = quota(manager, is_strict=False)
    assert permissive.record(90, NOW_MS)
    assert permissive.throttle_time_ms(NOW_MS) == 0

    assert permissive.record(90, NOW_MS)
    assert permissive.throttle_time_ms(NOW_MS) == 8000
    assert permissive.record(90, NOW_MS)

    assert not permissive.is_exceeded
    assert permissive.throttle_time_ms(NOW_MS) == 17_000
    assert permissive.throttle_time_ms(NOW_MS + 5000) == 12_000


def test_requests_of_a_client_share_its_tokens(manager: ControllerMutationQuotaManager) -> None:
    """testControllerMutationQuotaViolation"""
    now_ms = NOW_MS
    for _ in range(10):
        assert quota(manager, is_strict=True, now_ms=now_ms).record(10, now_ms)
        now_ms += 1000
    assert quota(manager, is_strict=True, now_ms=now_ms).record(110, now_ms)

    refused = quota(manager, is_strict=True, now_ms=now_ms)
    assert not refused.record(110, now_ms)
    assert refused.throttle_time_ms(now_ms) == 1000

    assert quota(manager, is_strict=True, now_ms=now_ms + 1000).record(110, now_ms + 1000)


@pytest.mark.parametrize("is_strict", [True, False])
def test_without_limits_all_is_accepted_and_nothing_measured(is_strict: bool) -> None:
    manager = ControllerMutationQuotaManager(window_ms=1000, windows_count=10)

    unbounded = quota(manager, is_strict=is_strict)

    assert unbounded.record(1e9, NOW_MS) and unbounded.record(1e9, NOW_MS)
    assert (unbounded.is_exceeded, unbounded.throttle_time_ms(NOW_MS), len(manager)) == (False, 0, 0)


def test_another_client_s_limit_binds_only_it(manager: ControllerMutationQuotaManager) -> None:
    other = manager.quota_of("ANONYMOUS", "other", NOW_MS, is_strict=True)

    assert other.record(1e9, NOW_MS) and other.record(1e9, NOW_MS)


def test_metrics_have_kafka_s_names(manager: ControllerMutationQuotaManager) -> None:
    quota(manager, is_strict=True).record(60, NOW_MS)

    tags = {"user": "ANONYMOUS", "client-id": "test-client"}
    assert list(manager.metrics(NOW_MS)) == [
        QuotaMetric("ControllerMutation", "mutation-rate", tags, 2.0),
        QuotaMetric("ControllerMutation", "tokens", tags, 40.0),
    ]
