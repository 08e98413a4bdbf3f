"""Long requests share the loop slice by slice."""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import pytest

from broker.turns import SLICE_US, Turns


class Loop:
    """Runs what was scheduled, one turn at a call; its clock moves only when a work says so."""

    def __init__(self) -> None:
        self.now_us = 0
        self.scheduled: deque[Callable[[], Any]] = deque()
        self.turns = Turns(self.scheduled.append, lambda: self.now_us)

    def work(self, pieces: int, result: Any, done: list[Any] | None = None) -> Generator[None, None, Any]:
        for _ in range(pieces):
            self.now_us += SLICE_US // 2
            yield
        if done is not None:
            done.append(result)
        if isinstance(result, Exception):
            raise result
        return result

    def turn(self) -> None:
        for _ in range(len(self.scheduled)):
            self.scheduled.popleft()()


def test_work_of_one_slice_is_answered_at_once() -> None:
    loop = Loop()

    answer = loop.turns.start(loop.work(1, "short"))

    assert answer.take() == "short"
    assert not loop.scheduled


def test_long_works_take_turns_in_the_order_of_their_arrival() -> None:
    loop = Loop()
    done: list[Any] = []
    loop.turns.start(loop.work(7, "long", done))
    loop.turns.start(loop.work(3, "shorter", done))

    while loop.scheduled:
        before_us = loop.now_us
        loop.turn()
        assert loop.now_us - before_us <= SLICE_US

    assert done == ["shorter", "long"]


def test_error_of_a_work_completes_its_deferred() -> None:
    loop = Loop()

    answer = loop.turns.start(loop.work(5, ValueError("no")))
    while loop.scheduled:
        loop.turn()

    with pytest.raises(ValueError, match="no"):
        answer.take()


def test_abandoned_work_ends_where_it_stands() -> None:
    loop = Loop()
    done: list[Any] = []
    answer = loop.turns.start(loop.work(5, "never", done))

    answer.abandon()
    loop.turn()

    assert not done
    assert not loop.scheduled
    assert len(loop.turns) == 0
