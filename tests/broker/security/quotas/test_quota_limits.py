"""Which limit counts for a client, and with whom it shares its rate."""

from __future__ import annotations

import itertools

import pytest

from broker.security.quotas.quota_limits import ABSENT, DEFAULT, QuotaLimits, QuotaScope, QuotaTags

LEVELS = [
    QuotaScope("a", "c"),
    QuotaScope("a", DEFAULT),
    QuotaScope("a", ABSENT),
    QuotaScope(DEFAULT, "c"),
    QuotaScope(DEFAULT, DEFAULT),
    QuotaScope(DEFAULT, ABSENT),
    QuotaScope(ABSENT, "c"),
    QuotaScope(ABSENT, DEFAULT),
]
"""In the order of Kafka's precedence, for user a with client id c."""


def limits_of(*scopes: QuotaScope) -> QuotaLimits:
    limits = QuotaLimits()
    for scope in scopes:
        limits.set(scope, float(LEVELS.index(scope) + 1) if scope in LEVELS else 100.0)
    return limits


def find(limits: QuotaLimits, user: str, client_id: str) -> float | None:
    return limits.find(limits.tags_of(user, client_id))


def test_the_first_level_that_is_set_counts_whatever_else_is() -> None:
    for count in range(1, len(LEVELS) + 1):
        for scopes in itertools.combinations(LEVELS, count):
            assert find(limits_of(*scopes), "a", "c") == LEVELS.index(scopes[0]) + 1


@pytest.mark.parametrize(
    ("scopes", "tags"),
    [
        ((), ("", "c")),
        ((QuotaScope(ABSENT, "x"),), ("", "c")),
        ((QuotaScope("x", ABSENT),), ("a", "")),
        ((QuotaScope("x", "y"),), ("a", "c")),
        ((QuotaScope("a", ABSENT), QuotaScope(ABSENT, "c")), ("a", "")),
        ((QuotaScope("x", ABSENT), QuotaScope(ABSENT, "c")), ("", "c")),
        ((QuotaScope("a", DEFAULT), QuotaScope("a", ABSENT)), ("a", "c")),
        ((QuotaScope(DEFAULT, DEFAULT), QuotaScope(DEFAULT, ABSENT)), ("a", "c")),
        ((QuotaScope(DEFAULT, ABSENT), QuotaScope(ABSENT, DEFAULT)), ("a", "")),
    ],
)
def test_clients_share_the_rate_of_the_level_that_counts(scopes: tuple[QuotaScope, ...], tags: tuple[str, str]) -> None:
    assert limits_of(*scopes).tags_of("a", "c") == QuotaTags(*tags)


def test_a_client_with_no_limit_finds_none() -> None:
    limits = limits_of(QuotaScope("x", ABSENT), QuotaScope("x", "y"), QuotaScope(ABSENT, "y"))

    assert find(limits, "a", "c") is None


@pytest.mark.parametrize("scope", [QuotaScope(DEFAULT, DEFAULT), QuotaScope(ABSENT, DEFAULT)])
def test_an_empty_client_id_is_bound_by_users_limits_only(scope: QuotaScope) -> None:
    """As in Kafka, whose tags mean by an empty name that the limit has no such part."""
    assert find(limits_of(scope), "a", "") is None
    assert find(limits_of(QuotaScope("a", ABSENT), QuotaScope("a", "x")), "a", "") == 3


def test_names_that_look_like_defaults_are_names() -> None:
    limits = limits_of(QuotaScope("<default>", ABSENT))

    assert find(limits, "a", "c") is None
    assert find(limits, "<default>", "c") == 100


def test_a_level_counts_until_its_last_limit_is_removed() -> None:
    """testQuotaTypesEnabledUpdatesWithDefaultCallback's steps: what is set twice counts once, and removing what is not there changes
    nothing."""
    limits = limits_of(QuotaScope(ABSENT, "c"), QuotaScope("a", ABSENT), QuotaScope("b", ABSENT))
    limits.set(QuotaScope("a", "c"), 10)
    limits.set(QuotaScope("a", "c"), 12)
    limits.set(QuotaScope("z", ABSENT), None)
    assert limits.tags_of("x", "y") == ("", "y")

    limits.set(QuotaScope(ABSENT, "c"), None)
    limits.set(QuotaScope("a", "c"), None)
    assert limits.tags_of("x", "y") == ("x", "")

    limits.set(QuotaScope("a", ABSENT), None)
    assert not limits.is_empty
    limits.set(QuotaScope("b", ABSENT), None)
    limits.set(QuotaScope("b", ABSENT), None)
    assert limits.is_empty
    assert limits.tags_of("x", "y") == ("", "y")
