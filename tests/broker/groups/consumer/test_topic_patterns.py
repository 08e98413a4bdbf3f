"""Regular expressions in RE2's syntax, bounded."""

from __future__ import annotations

import sys

import pytest

from broker.groups.consumer.topic_patterns import PATTERN_CHARACTERS_MAX, PatternError, TopicPattern
from tests.support.re2 import needs_re2


@needs_re2()
@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("orders", ["orders"], ["orders-1", "my-orders"]),
        ("orders.*", ["orders", "orders-1"], ["my-orders"]),
        ("^a|b$", ["a", "b"], ["ab"]),
        (r"\d+\.[[:alpha:]]+", ["12.ab"], ["12.", ".ab"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        (r"[^é]+", ["orders"], [""]),
        (r"\pL+", ["orders"], ["1"]),
        (r"\Qa.b\E", ["a.b"], ["aXb"]),
        ("", [""], ["a"]),
    ],
)
def test_names_are_matched_as_a_whole(text: str, matching: list[str], others: list[str]):
    pattern = TopicPattern(text)

    assert [name for name in matching + others if pattern.matches(name)] == matching


@needs_re2()
@pytest.mark.parametrize("text", ["(", "[a", "a**", r"(a)\1", "(?=a)", "a{1001}", "((a{100}){100}){100}", r"\Z"])
def test_what_is_no_regular_expression_here_is_refused(text: str):
    with pytest.raises(PatternError):
        TopicPattern(text)


@needs_re2()
@pytest.mark.parametrize(
    "text",
    ["a" * (PATTERN_CHARACTERS_MAX + 1), "(?:a?b?c?d?e?){999}", "(((((a{1,2}){1,2}){1,2}){1,3}){1,3}){1,3}" * 40, r"\pL{1000}.{1000}" * 3],
)
def test_what_would_be_slow_is_refused(text: str):
    with pytest.raises(PatternError):
        TopicPattern(text)


def test_without_the_package_the_error_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "re2", None)

    with pytest.raises(PatternError, match="google-re2 is not installed"):
        TopicPattern("a")
