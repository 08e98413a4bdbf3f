"""docs/architecture.md's drawing of the rooms is what the imports say."""

from __future__ import annotations

from tests.rooms import COMMAND, DOCUMENT, draw, drawn_in
from tests.support.imports import without_shortcuts


def test_drawing_is_that_of_the_imports() -> None:
    assert drawn_in(DOCUMENT.read_text()) == draw(), f"the rooms import otherwise by now: run `{COMMAND}`, and look at what changed"


def test_arrow_that_others_imply_is_left_out() -> None:
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": set()}

    assert without_shortcuts(graph) == {"a": {"b", "d"}, "b": {"c"}, "c": set(), "d": set()}
