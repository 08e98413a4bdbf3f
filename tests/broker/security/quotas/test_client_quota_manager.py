"""The cases of ClientQuotaManagerTest and ClientRequestQuotaManagerTest."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from broker.security.quotas.client_quota_manager import PERCENT_PER_NANOSECOND, ClientQuotaManager, RequestQuotaManager
from broker.security.quotas.client_sensors import UNLIMITED
from broker.security.quotas.quota_limits import ABSENT, DEFAULT, QuotaScope
from broker.security.quotas.quota_metrics import FETCH, PRODUCE, QuotaMetric
from broker.security.quotas.rate import THROTTLE_TIME_MAX_MS

WINDOWS_COUNT = 11


@pytest.fixture
def manager() -> ClientQuotaManager:
    return ClientQuotaManager(PRODUCE, window_ms=1000, windows_count=WINDOWS_COUNT)


def record(manager: ClientQuotaManager, user: str, client_id: str, value: float, now_ms: int = 0) -> int:
    """As a handler does it."""
    return manager.record(user, client_id, value, now_ms) if manager.is_enabled else 0


class Case(NamedTuple):
    """The scopes of two clients' limits, and of a limit for all."""

    first: QuotaScope
    second: QuotaScope
    default: QuotaScope


CASES = {
    "client ids": Case(QuotaScope(ABSENT, "p1"), QuotaScope(ABSENT, "p2"), QuotaScope(ABSENT, DEFAULT)),
    "users": Case(QuotaScope("User1", ABSENT), QuotaScope("User2", ABSENT), QuotaScope(DEFAULT, ABSENT)),
    "both": Case(QuotaScope("User1", "p1"), QuotaScope("User2", "p2"), QuotaScope(DEFAULT, DEFAULT)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_limit_can_be_set_changed_and_removed_while_its_client_is_measured(manager: ClientQuotaManager, case: Case) -> None:
    """testQuotaParsing"""
    manager.set_limit(case.first, 2000)
    manager.set_limit(case.second, 4000)
    assert manager.limit_of("RandomUser", "random-client-id") == UNLIMITED
    assert manager.limit_of("User1", "p1") == 2000
    assert manager.limit_of("User2", "p2") == 4000
    assert record(manager, "User1", "p1", 2500 * WINDOWS_COUNT) > 0

    manager.set_limit(case.first, 3000)
    assert manager.limit_of("User1", "p1") == 3000
    assert record(manager, "User1", "p1", 0) == 0

    manager.set_limit(case.first, 500)
    assert record(manager, "User1", "p1", 0) > 0

    manager.set_limit(case.first, None)
    manager.set_limit(case.default, 4000)
    assert manager.limit_of("User1", "p1") == 4000
    assert record(manager, "User1", "p1", 1000 * WINDOWS_COUNT) == 0


def check(manager: ClientQuotaManager, user: str, client_id: str, limit: float, value: int, *, is_throttled: bool) -> None:
    """checkQuota"""
    assert manager.limit_of(user, client_id) == limit
    assert manager.max_value_in_window(user, client_id) == (None if limit == UNLIMITED else limit * (WINDOWS_COUNT - 1))
    assert (record(manager, user, client_id, value * WINDOWS_COUNT) > 0) == is_throttled


@pytest.mark.parametrize("scope", [QuotaScope(DEFAULT, ABSENT), QuotaScope("userA", ABSENT), QuotaScope("userA", "client1")])
def test_a_limit_counts_until_it_is_removed(manager: ClientQuotaManager, scope: QuotaScope) -> None:
    """testSetAndRemoveDefaultUserQuota, testSetAndRemoveUserQuota, testSetAndRemoveUserClientQuota"""
    assert not manager.is_enabled
    check(manager, "userA", "client1", UNLIMITED, 1000, is_throttled=False)

    manager.set_limit(scope, 10)
    check(manager, "userA", "client1", 10, 1000, is_throttled=True)

    manager.set_limit(scope, None)
    assert not manager.is_enabled
    check(manager, "userA", "client1", UNLIMITED, 1000, is_throttled=False)


def test_precedence(manager: ClientQuotaManager) -> None:
    """testQuotaConfigPrecedence: what takes precedence, and who shares a rate with whom, through all changes."""
    for user, client_id, limit in [
        (DEFAULT, ABSENT, 1000),
        (ABSENT, DEFAULT, 2000),
        (DEFAULT, DEFAULT, 3000),
        ("userA", ABSENT, 4000),
        ("userA", "client1", 5000),
        ("userB", ABSENT, 6000),
        ("userB", "client1", 7000),
        ("userB", DEFAULT, 8000),
        ("userC", ABSENT, 10000),
        (ABSENT, "client1", 9000),
    ]:
        manager.set_limit(QuotaScope(user, client_id), limit)

    check(manager, "userA", "client1", 5000, 4500, is_throttled=False)
    check(manager, "userA", "client2", 4000, 4500, is_throttled=True)
    check(manager, "userA", "client3", 4000, 0, is_throttled=True)
    check(manager, "userA", "client1", 5000, 0, is_throttled=False)

    check(manager, "userB", "client1", 7000, 8000, is_throttled=True)
    check(manager, "userB", "client2", 8000, 7000, is_throttled=False)
    check(manager, "userB", "client3", 8000, 7000, is_throttled=False)

    check(manager, "userD", "client1", 3000, 3500, is_throttled=True)
    check(manager, "userD", "client2", 3000, 2500, is_throttled=False)
    check(manager, "userE", "client1", 3000, 2500, is_throttled=False)

    manager.set_limit(QuotaScope(DEFAULT, DEFAULT), None)
    check(manager, "userD", "client1", 1000, 0, is_throttled=False)  # other tags, so a new rate
    check(manager, "userE", "client4", 1000, 1500, is_throttled=True)
    check(manager, "userF", "client4", 1000, 800, is_throttled=False)
    check(manager, "userF", "client5", 1000, 800, is_throttled=True)

    manager.set_limit(QuotaScope(DEFAULT, ABSENT), None)
    check(manager, "userF", "client4", 2000, 0, is_throttled=False)
    check(manager, "userF", "client5", 2000, 0, is_throttled=False)
    check(manager, "userF", "client5", 2000, 2500, is_throttled=True)
    check(manager, "userG", "client5", 2000, 0, is_throttled=True)

    manager.set_limit(QuotaScope("userA", ABSENT), 8000)
    manager.set_limit(QuotaScope("userA", "client1"), 10000)
    check(manager, "userA", "client2", 8000, 0, is_throttled=False)
    check(manager, "userA", "client2", 8000, 4500, is_throttled=True)
    check(manager, "userA", "client1", 10000, 0, is_throttled=False)
    check(manager, "userA", "client1", 10000, 6000, is_throttled=True)

    manager.set_limit(QuotaScope("userA", "client1"), None)
    check(manager, "userA", "client6", 8000, 0, is_throttled=True)
    manager.set_limit(QuotaScope("userA", "client6"), 11000)
    check(manager, "userA", "client6", 11000, 8500, is_throttled=False)
    manager.set_limit(QuotaScope("userA", DEFAULT), 12000)
    manager.set_limit(QuotaScope("userA", "client6"), None)
    check(manager, "userA", "client6", 12000, 4000, is_throttled=True)


def test_a_spike_is_throttled_for_the_time_that_brings_the_rate_back(manager: ClientQuotaManager) -> None:
    """testQuotaViolation: 400 x 10 + 2300 in 10.5 s is 600 a second; (600 - 500) / 500 x 10.5 s."""
    manager.set_limit(QuotaScope(ABSENT, DEFAULT), 500)
    now_ms = 1_700_000_000_000
    for _ in range(10):
        assert record(manager, "ANONYMOUS", "unknown", 400, now_ms) == 0
        now_ms += 1000

    now_ms += 500
    assert record(manager, "ANONYMOUS", "unknown", 2300, now_ms) == 2100

    now_ms += 2100
    for _ in range(10):
        record(manager, "ANONYMOUS", "unknown", 400, now_ms)
        now_ms += 1000
    assert record(manager, "ANONYMOUS", "unknown", 0, now_ms) == 0


def test_request_time_is_throttled_for_a_window_at_most() -> None:
    """testRequestPercentageQuotaViolation: 1 % is 10 ms a second; (10.2 - 10) / 10 x 10.5 s."""
    manager = RequestQuotaManager(window_ms=1000, windows_count=WINDOWS_COUNT)
    manager.set_limit(QuotaScope("ANONYMOUS", "test-client"), 1)
    now_ms = 1_700_000_000_000

    def took(milliseconds: float) -> int:
        return manager.record("ANONYMOUS", "test-client", milliseconds * 1_000_000 * PERCENT_PER_NANOSECOND, now_ms)

    for _ in range(10):
        assert took(4) == 0
        now_ms += 1000
    now_ms += 500
    assert took(67.1) == 210
    now_ms += 210
    for _ in range(11):
        took(4)
        now_ms += 1000
    assert took(0) == 0

    assert took(500) == 1000
    for _ in range(10):
        now_ms += 1000
        assert took(0) == 1000
    now_ms += 1000
    assert took(0) == 0


def test_time_is_counted_in_percent_of_a_second() -> None:
    manager = RequestQuotaManager(window_ms=1000, windows_count=2)
    manager.set_limit(QuotaScope("a", ABSENT), 50)

    assert manager.record_time("a", "c", 500_000_000, 0) == 0
    assert manager.record_time("a", "c", 100_000_000, 0) == 200
    manager.record_exempt_time(600_000_000, 0)

    assert list(manager.metrics(0)) == [
        QuotaMetric("Request", "request-time", {"user": "a", "client-id": ""}, 60.0),
        QuotaMetric("Request", "exempt-request-time", {}, 2.0),
    ]


def test_a_fetch_that_is_taken_back_leaves_the_rate_as_it_was() -> None:
    manager = ClientQuotaManager(FETCH, window_ms=1000, windows_count=WINDOWS_COUNT)
    manager.set_limit(QuotaScope("a", ABSENT), 100)
    record(manager, "a", "c", 900)

    assert record(manager, "a", "c", 500) == 4000
    manager.unrecord("a", "c", 500, 0)

    assert record(manager, "a", "c", 100) == 0


def test_what_is_recorded_unchecked_throttles_the_next_request(manager: ClientQuotaManager) -> None:
    manager.set_limit(QuotaScope("a", ABSENT), 100)

    manager.record_unchecked("a", "c", 2000, 0)

    assert record(manager, "a", "c", 0) == 10_000


def test_largest_value_without_throttling_follows_the_windows() -> None:
    """testMaxValueInQuotaWindowWithNonDefaultQuotaWindow"""
    manager = ClientQuotaManager(FETCH, window_ms=1000, windows_count=4)
    assert manager.max_value_in_window("userA", "client1") is None

    manager.set_limit(QuotaScope(DEFAULT, ABSENT), 10)

    assert manager.max_value_in_window("userA", "client1") == 30
    assert record(manager, "userA", "client1", 30) == 0
    assert record(manager, "userA", "client1", 1) > 0


def test_throttle_time_fits_the_response_s_field(manager: ClientQuotaManager) -> None:
    manager.set_limit(QuotaScope("a", ABSENT), 1)

    assert record(manager, "a", "c", 1e12) == THROTTLE_TIME_MAX_MS


def test_metrics_have_kafka_s_names_and_the_raw_client_id(manager: ClientQuotaManager) -> None:
    """testClientIdNotSanitized"""
    manager.set_limit(QuotaScope(DEFAULT, DEFAULT), 500)
    record(manager, "CN=a b*", "client@#$%", 100)
    manager.record_throttle_time("CN=a b*", "client@#$%", 20, 0)
    manager.record_throttle_time("CN=a b*", "client@#$%", 40, 0)

    tags = {"user": "CN%3Da%20b%2A", "client-id": "client@#$%"}
    assert list(manager.metrics(0)) == [
        QuotaMetric("Produce", "byte-rate", tags, 10.0),
        QuotaMetric("Produce", "throttle-time", tags, 30.0),
    ]
