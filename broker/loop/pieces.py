"""What is left of counting elements between two yields: a generator yields after each element now (broker/loop/turns.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Element = TypeVar("Element")

PIECE_ELEMENTS = 50


class Pace:
    """To go: yields are due after each element."""

    def is_due(self, count: int = 1) -> bool:
        return True


def pieces(elements: Sequence[Element], size: int = 1) -> Iterator[Sequence[Element]]:
    """To go: the elements in their order, `size` at a time."""
    for start in range(0, len(elements), size):
        yield elements[start : start + size]


def text_pieces(texts: Iterable[str]) -> Iterator[list[str]]:
    """To go: each text alone."""
    for text in texts:
        yield [text]
