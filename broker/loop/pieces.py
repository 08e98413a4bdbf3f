"""Work in pieces: how a handler decides between an answer at once and one in turns (broker/loop/turns.py).

A handler writes work on many elements once, as a generator that yields after each piece. Small requests are answered at once: turns would
cost them microseconds and a place behind longer requests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from typing import Any, TypeVar

from broker.loop.deferred import Deferred
from broker.loop.turns import Work, is_many

Element = TypeVar("Element")
Made = TypeVar("Made")

PIECE_ELEMENTS = 50
"""Elements between two yields. Handlers spend 1 to 5 µs on each: 50 to 250 µs."""

PIECE_CHARACTERS = 5_000
"""Characters between two yields where they are hashed, at 0.08 µs each."""

PIECES_AT_ONCE = 4
"""Pieces that are done before others have their turn."""


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


def make_in_pieces(make: Callable[[Element], Made], elements: Sequence[Element]) -> Generator[None, None, list[Made]]:
    """What `make` returns for each element."""
    made: list[Made] = []
    for piece in pieces(elements):
        made += [make(element) for element in piece]
        if len(piece) == PIECE_ELEMENTS:
            yield
    return made


def in_turns_if_many(response: Made, lists: Iterable[Sized], limit: int) -> Made | Generator[None, None, Made]:
    """The response; if these lists of it hold more than `limit` elements, work that returns it, for dispatch encodes what work returns in
    turns."""
    return _in_turns(response) if is_many(lists, limit) else response


def _in_turns(response: Made) -> Generator[None, None, Made]:
    yield
    return response


def at_once(work: Generator[None, None, Made]) -> Made:
    """What `work` returns, all of it done now: for the caller knows that it is little."""
    while True:
        try:
            next(work)
        except StopIteration as e:
            made: Made = e.value
            return made


def at_once_or_in_turns(work: Work) -> Any:
    """What `work` returns or raises if a few pieces are all of it, else `work`, begun, which dispatch continues in turns."""
    try:
        for _ in range(PIECES_AT_ONCE):
            awaited = next(work)
            if awaited is not None:
                return _awaiting(awaited, work)
    except StopIteration as e:
        return e.value
    return work


def _awaiting(awaited: Deferred | None, work: Work) -> Work:
    """The rest of `work`, which yielded `awaited`."""
    try:
        while True:
            try:
                value = yield awaited
            except Exception as e:
                awaited = work.throw(e)
            else:
                awaited = work.send(value)
    except StopIteration as e:
        return e.value
    finally:
        work.close()
