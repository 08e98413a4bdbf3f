"""What a failed request's frames hold is freed in pieces."""

from __future__ import annotations

import pytest

from broker.freeing import FREED_PER_PIECE, Leftovers, frames_of_error
from protocol.errors import DecodeError, without_frames

COUNT = 10 * FREED_PER_PIECE


class Element:
    freed = 0

    def __del__(self) -> None:
        Element.freed += 1


def decode() -> None:
    elements = [Element() for _ in range(COUNT)]
    try:
        elements[COUNT]
    except IndexError as error:
        raise DecodeError("it ends too early") from error


def fail_while_handling() -> None:
    collected = {index: Element() for index in range(COUNT)}
    try:
        decode()
    except DecodeError:
        raise ValueError(len(collected))  # noqa: B904 - its context holds the frames


@pytest.mark.parametrize(("fail", "count"), [(decode, COUNT), (fail_while_handling, 2 * COUNT)])
def test_what_the_frames_of_an_error_and_its_causes_hold_is_freed_in_pieces(fail: object, count: int) -> None:
    Element.freed = 0
    caught: Exception | None = None
    try:
        fail()  # type: ignore[operator]
    except (DecodeError, ValueError) as error:
        caught = error
    assert caught is not None

    leftovers = Leftovers(frames_of_error(caught))
    without_frames(caught)
    freed = leftovers.freed()
    assert freed is not None
    assert Element.freed == 0
    pieces = sum(1 for _ in freed)

    assert Element.freed == count
    assert pieces >= count // FREED_PER_PIECE


def test_an_error_whose_frames_hold_little_leaves_nothing_to_do() -> None:
    try:
        raise DecodeError("at once")
    except DecodeError as error:
        leftovers = Leftovers(frames_of_error(error))
        without_frames(error)

    assert leftovers.freed() is None
