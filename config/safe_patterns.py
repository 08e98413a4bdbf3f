"""SafePattern: a regular expression that takes no longer than its length times the text's, whoever has written either.

Python's `re` tries one way after another, and may try them for hours. Here all ways are followed at once, as a nondeterministic automaton
does. What such an automaton cannot do (back references, looking around) is refused, as are patterns that are too large. The syntax
is `re`'s, which is Java's but for rarities.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

NODES_MAX = 200
"""Nodes of an automaton: each character of a text is compared with all of them at most."""

TEXT_MAX = 255
"""Characters; a longer text matches nothing. With NODES_MAX this is at most 10 ms, once for a client and a pattern."""

PATTERN_MAX = 1_000

_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    op.CATEGORY_DIGIT: lambda c: c in "0123456789",
    op.CATEGORY_NOT_DIGIT: lambda c: c not in "0123456789",
    op.CATEGORY_SPACE: lambda c: c in " \t\n\r\f\v",
    op.CATEGORY_NOT_SPACE: lambda c: c not in " \t\n\r\f\v",
    op.CATEGORY_WORD: lambda c: c.isascii() and (c.isalnum() or c == "_"),
    op.CATEGORY_NOT_WORD: lambda c: not (c.isascii() and (c.isalnum() or c == "_")),
}


_BEGINNINGS = ((op.AT, op.AT_BEGINNING), (op.AT, op.AT_BEGINNING_STRING))
_ENDS = ((op.AT, op.AT_END), (op.AT, op.AT_END_STRING))


class PatternError(Exception):
    """Not a regular expression, or one that is not served."""


class _Node:
    """A state of the automaton: what it accepts, None for a mere junction, and where it goes on."""

    __slots__ = ("accepts", "following")

    def __init__(self, accepts: Callable[[str], bool] | None = None) -> None:
        self.accepts = accepts
        self.following: list[_Node] = []


class SafePattern:
    """A pattern that texts can match as a whole. Raises PatternError."""

    __slots__ = ("_end", "_nodes_count", "_start", "text")

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_MAX:
            raise PatternError("the pattern is too long")
        self.text = text
        self._nodes_count = 0
        try:
            parsed: Any = _parser.parse(text, re.ASCII)
        except (re.error, OverflowError, RecursionError) as error:
            raise PatternError(str(error)) from error
        if parsed.state.flags != re.ASCII:
            raise PatternError("flags are not served")
        # A text is matched as a whole: anchors around the pattern say nothing more.
        items = list(parsed)
        while items and items[0] in _BEGINNINGS:
            del items[0]
        while items and items[-1] in _ENDS:
            del items[-1]
        self._start = self._make_node()
        self._end = self._sequence(items, self._start)

    def matches(self, text: str) -> bool:
        """Whether the whole text is what the pattern describes."""
        if len(text) > TEXT_MAX:
            return False
        current = _reached([self._start])
        for character in text:
            current = _reached([after for node in current if node.accepts and node.accepts(character) for after in node.following])
            if not current:
                return False
        return self._end in current

    # -- building ------------------------------------------------------------------------------------------------------

    def _make_node(self, accepts: Callable[[str], bool] | None = None) -> _Node:
        self._nodes_count += 1
        if self._nodes_count > NODES_MAX:
            raise PatternError("the pattern is too large")
        return _Node(accepts)

    def _sequence(self, items: Sequence[Any], start: _Node) -> _Node:
        """Builds what is to be matched after `start`; returns the junction behind it."""
        for kind, argument in items:
            start = self._item(kind, argument, start)
        return start

    def _item(self, kind: Any, argument: Any, start: _Node) -> _Node:
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            low, high, items = argument
            return self._repeat(low, high, items, start)
        if kind is op.SUBPATTERN:
            _, added_flags, removed_flags, items = argument
            if added_flags or removed_flags:
                raise PatternError("flags are not served")
            return self._sequence(items, start)
        if kind is op.BRANCH:
            end = self._make_node()
            for items in argument[1]:
                branch = self._make_node()
                start.following.append(branch)
                self._sequence(items, branch).following.append(end)
            return end
        return self._single(_acceptor(kind, argument), start)

    def _single(self, accepts: Callable[[str], bool], start: _Node) -> _Node:
        node = self._make_node(accepts)
        end = self._make_node()
        start.following.append(node)
        node.following.append(end)
        return end

    def _repeat(self, low: int, high: Any, items: Sequence[Any], start: _Node) -> _Node:
        for _ in range(low):
            start = self._sequence(items, self._joined(start))
        if high is op.MAXREPEAT:
            begin = self._joined(start)
            end = self._make_node()
            begin.following.append(end)
            self._sequence(items, self._joined(begin)).following.append(begin)
            return end
        end = self._make_node()
        start.following.append(end)
        for _ in range(high - low):
            start = self._sequence(items, self._joined(start))
            start.following.append(end)
        return end

    def _joined(self, start: _Node) -> _Node:
        node = self._make_node()
        start.following.append(node)
        return node


def _reached(nodes: list[_Node]) -> list[_Node]:
    """The nodes, and those that junctions lead to from them."""
    seen: dict[_Node, None] = {}
    while nodes:
        node = nodes.pop()
        if node not in seen:
            seen[node] = None
            if node.accepts is None:
                nodes.extend(node.following)
    return list(seen)


def _acceptor(kind: Any, argument: Any) -> Callable[[str], bool]:
    if kind is op.LITERAL:
        return chr(argument).__eq__
    if kind is op.NOT_LITERAL:
        return chr(argument).__ne__
    if kind is op.ANY:
        return "\n".__ne__
    if kind is op.IN:
        return _set_acceptor(argument)
    raise PatternError(f"{str(kind).lower()} is not served")


def _set_acceptor(members: Sequence[Any]) -> Callable[[str], bool]:
    is_negated = bool(members) and members[0][0] is op.NEGATE
    tests = list(_member_tests(members[is_negated:]))
    return lambda character: any(test(character) for test in tests) is not is_negated


def _is_between(low: int, high: int, character: str) -> bool:
    return low <= ord(character) <= high


def _member_tests(members: Sequence[Any]) -> Iterator[Callable[[str], bool]]:
    for kind, argument in members:
        if kind is op.RANGE:
            yield partial(_is_between, *argument)
        elif kind is op.LITERAL:
            yield chr(argument).__eq__
        elif kind is op.CATEGORY and argument in _CATEGORIES:
            yield _CATEGORIES[argument]
        else:
            raise PatternError(f"{str(argument).lower()} is not served")
