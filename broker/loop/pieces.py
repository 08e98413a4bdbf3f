"""Counts elements, so that a generator that goes in turns yields after each piece of them (broker/loop/turns.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from broker.loop.turns import PIECE_ELEMENTS

Element = TypeVar("Element")

PIECE_CHARACTERS = 5_000
"""Characters between two yields where they are hashed, at 0.08 µs each."""


class Pace:
    """Tells a generator that works on nested elements when its next yield is due."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = PIECE_ELEMENTS

    def is_due(self, count: int = 1) -> bool:
        """Whether `count` more elements complete a piece."""
        self._left -= count
        if self._left > 0:
            return False
        self._left = PIECE_ELEMENTS
        return True


def pieces(elements: Sequence[Element], size: int = PIECE_ELEMENTS) -> Iterator[Sequence[Element]]:
    """The elements in their order, `size` at a time. Who yields between two pieces gives a copy of what may change meanwhile."""
    for start in range(0, len(elements), size):
        yield elements[start : start + size]


def text_pieces(texts: Iterable[str]) -> Iterator[list[str]]:
    """The same for texts whose length counts, as where each is hashed: any may be of 32 KB."""
    piece: list[str] = []
    characters_count = 0
    for text in texts:
        piece.append(text)
        characters_count += len(text)
        if characters_count >= PIECE_CHARACTERS or len(piece) >= PIECE_ELEMENTS:
            yield piece
            piece, characters_count = [], 0
    if piece:
        yield piece
