"""Regular expressions in RE2's syntax, matched as a whole and bounded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.safe_patterns import PATTERN_CHARACTERS_MAX, TEXT_MAX, PatternError, SafePattern

PIECES = ("a", "b", "[ab]", "[^a]", "(a|b)", "a*", "b?", "(ab)*", "(a?b)+", ".", "a{1,2}", "(?:|c)", r"\d", r"\w*?", r"1\.2")


@given(pieces=st.lists(st.sampled_from(PIECES), max_size=5), text=st.text("abc1.2", max_size=8))
def test_it_matches_what_re_matches(pieces: list[str], text: str) -> None:
    pattern = "".join(pieces)

    assert SafePattern(pattern).matches(text) == bool(re.fullmatch(pattern, text, re.ASCII))


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("orders", ["orders"], ["orders-1", "my-orders"]),
        ("^a|b$", ["a", "b"], ["ab"]),
        (r"\d+\.[[:alpha:]]+", ["12.ab"], ["12.", ".ab"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        (r"[^é]+", ["orders", "ö"], ["", "é"]),
        (r"\pL{2}", ["äß"], ["1", "ä"]),
        (r"\Qa.b\E", ["a.b"], ["aXb"]),
        ("", [""], ["a"]),
    ],
)
def test_texts_are_matched_as_a_whole(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = SafePattern(pattern)

    assert [text for text in matching + others if compiled.matches(text)] == matching


def test_classes_of_many_characters_have_room_where_texts_are_ascii() -> None:
    pattern = "-".join([r"[\pL\pN]+"] * 5)

    assert SafePattern(pattern, is_ascii=True).matches("a-1-b-2-c")
    with pytest.raises(PatternError, match="too large"):
        SafePattern(pattern)


@pytest.mark.parametrize("pattern", ["(", "[a", "a**", r"(a)\1", "(?=a)", "a{1001}", "((a{100}){100}){100}", r"\Z"])
def test_what_is_no_regular_expression_here_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        SafePattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["a" * (PATTERN_CHARACTERS_MAX + 1), "(?:a?b?c?d?e?){999}", "(((((a{1,2}){1,2}){1,2}){1,3}){1,3}){1,3}" * 40, r"\pL{1000}.{1000}" * 3],
)
def test_what_would_be_slow_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        SafePattern(pattern)


def test_a_pattern_that_would_take_years_to_backtrack_is_answered() -> None:
    assert not SafePattern("(((a*)*)*)*b").matches("a" * TEXT_MAX)


def test_a_long_text_matches_nothing() -> None:
    assert SafePattern("a*").matches("a" * TEXT_MAX)
    assert not SafePattern("a*").matches("a" * (TEXT_MAX + 1))
