"""What a subscription's `match` may say: RE2's syntax, and an error that tells of it where Java's has more."""

from __future__ import annotations

import pytest

from config.client_metrics import DIFFERENCES_FROM_JAVA, parse_match
from config.properties import ConfigError


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("app-[0-9]+", "app-12", "app-"),
        (r"(?i)APP\d", "app1", "app"),
        (r"[^\[&]+", "a", "["),
        (r"\Q[[\E", "[[", "["),
        (r"a\[[&b]", "a[b", "ab"),
    ],
)
def test_pattern_matches_the_whole_parameter(pattern: str, matching: str, other: str) -> None:
    (made,) = parse_match((f"client_id={pattern}",)).values()

    assert (made.matches(matching), made.matches(other)) == (True, False)


@pytest.mark.parametrize("pattern", ["(?!a)b", r"(a)\1", "a++", "[a[b]]", "[a-z&&[^b]]", r"\[[]&&b]", r"\u0041", "["])
def test_pattern_that_re2_does_not_have_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_match((f"client_id={pattern}",))

    assert str(refused.value).startswith(f"Illegal client matching pattern: client_id={pattern} (")
    assert DIFFERENCES_FROM_JAVA in str(refused.value)


@pytest.mark.parametrize("criterion", ["colour=blue", "client_id=", "client_id", "client_id=a=b"])
def test_criterion_that_is_none_is_refused_in_kafka_s_words(criterion: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_match((criterion,))

    assert str(refused.value) == f"Illegal client matching pattern: {criterion}"
