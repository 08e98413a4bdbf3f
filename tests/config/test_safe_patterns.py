"""SafePattern says what re.fullmatch says, and takes no longer for a pattern that is made to take long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.safe_patterns import NODES_MAX, TEXT_MAX, PatternError, SafePattern

PIECES = ("a", "b", "[ab]", "[^a]", "(a|b)", "a*", "b?", "(ab)*", "(a?b)+", ".", "a{1,2}", "(?:|c)", r"\d", r"\w*?", r"1\.2")


@given(pieces=st.lists(st.sampled_from(PIECES), max_size=5), text=st.text("abc1.2", max_size=8))
def test_it_matches_what_re_matches(pieces: list[str], text: str) -> None:
    pattern = "".join(pieces)

    assert SafePattern(pattern).matches(text) == bool(re.fullmatch(pattern, text, re.ASCII))


@pytest.mark.parametrize("pattern", ["^a.*$", "a.*", r"\Aa.*\Z"])
def test_anchors_around_a_pattern_say_nothing_more(pattern: str) -> None:
    assert SafePattern(pattern).matches("abc")
    assert not SafePattern(pattern).matches("xabc")


@pytest.mark.parametrize(
    "pattern", ["[", "(", r"(a)\1", "(?=a)b", "(?i)a", "(?i:a)", "a^b", r"a\b", f"a{{{NODES_MAX}}}", "(" * 500, "a" * 1_001]
)
def test_what_is_not_served_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        SafePattern(pattern)


def test_a_pattern_that_would_take_years_is_answered() -> None:
    assert not SafePattern("(((a*)*)*)*b").matches("a" * TEXT_MAX)


def test_a_long_text_matches_nothing() -> None:
    assert SafePattern("a*").matches("a" * TEXT_MAX)
    assert not SafePattern("a*").matches("a" * (TEXT_MAX + 1))
