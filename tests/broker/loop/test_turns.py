"""Long requests share the loop slice by slice."""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import pytest

from broker.loop.deferred import Deferred
from broker.loop.turns import SLICE_US, Turns
from tests.broker.loop.turn_loop import TurnLoop


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


def test_short_works_share_a_turn() -> None:
    loop = Loop()
    done: list[Any] = []
    loop.turns.start(loop.work(7, "long", done))
    for number in range(20):
        loop.turns.start(loop.work(0, number, done))

    while "long" not in done:
        before_us = loop.now_us
        loop.turn()
        assert loop.now_us - before_us <= SLICE_US

    assert done == [*range(20), "long"]
    assert loop.now_us == 7 * (SLICE_US // 2)


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


def test_work_that_waits_for_something_lets_the_others_go_on() -> None:
    loop, awaited = TurnLoop(), Deferred()

    def work() -> Generator[Any, Any, Any]:
        yield
        return (yield awaited)

    answer = loop.turns.start(work())
    other = loop.turns.start(loop_work(20, "other"))
    loop.run()
    assert (other.take(), answer.is_done, len(loop.turns)) == ("other", False, 1)

    awaited.complete("there")
    assert not answer.is_done, "a completion starts nothing from inside"
    loop.run()

    assert (answer.take(), len(loop.turns)) == ("there", 0)


def test_what_is_there_already_is_not_waited_for() -> None:
    loop, awaited = TurnLoop(), Deferred()
    awaited.complete("there")

    def work() -> Generator[Any, Any, Any]:
        return (yield awaited)

    assert loop.turns.start(work()).take() == "there"


def test_an_exception_that_is_waited_for_is_raised_in_the_work() -> None:
    loop, awaited = TurnLoop(), Deferred()

    def work() -> Generator[Any, Any, Any]:
        try:
            yield awaited
        except ValueError:
            return "caught"

    answer = loop.turns.start(work())
    awaited.complete(ValueError())
    loop.run()

    assert answer.take() == "caught"


def test_work_abandoned_while_it_waits_abandons_what_it_waits_for() -> None:
    loop, awaited = TurnLoop(), Deferred()
    ended: list[str] = []

    def work() -> Generator[Any, Any, Any]:
        try:
            yield awaited
        finally:
            ended.append("work")

    answer = loop.turns.start(work())
    answer.abandon()

    assert (ended, awaited.is_abandoned, len(loop.turns)) == (["work"], True, 0)


def test_work_that_begins_when_another_ends_waits_for_the_next_turn() -> None:
    """Else each end of a stage would add a slice to the same turn."""
    loop = TurnLoop()
    later: list[Deferred] = []
    first = loop.turns.start(loop_work(6, "first"))
    first.when_done(lambda _: later.append(loop.turns.start(loop_work(1, "second"))))

    loop.turn()
    assert [answer.is_done for answer in later] == [False]
    loop.turn()

    assert later[0].take() == "second"


def test_order_is_held_until_the_work_has_ended_or_waits_for_its_answer_only() -> None:
    loop, parked = TurnLoop(), Deferred()
    released: list[str] = []
    answer = loop.turns.start(loop_work(10, parked))
    answer.on_order_released = lambda: released.append("now")
    assert answer.holds_order

    loop.run()

    assert (released, answer.holds_order, answer.is_done) == (["now"], False, False)


def loop_work(pieces: int, result: Any) -> Generator[None, None, Any]:
    for _ in range(pieces):
        yield
    return result


def test_closing_twice_ends_each_work_once() -> None:
    """The listeners of a node share the queue, and each closes it."""
    loop = Loop()
    ended: list[str] = []

    def work(name: str) -> Generator[None, None, None]:
        try:
            while True:
                loop.now_us += SLICE_US
                yield
        finally:
            ended.append(name)

    for name in ("a", "b"):
        loop.turns.start(work(name))
    for _ in range(2):
        loop.turn()
    loop.turns.close()
    loop.turns.close()
    loop.turn()

    assert sorted(ended) == ["a", "b"] and len(loop.turns) == 0
