"""What is answered at once, what goes in turns, and what waits."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

import pytest

from broker.loop.deferred import Deferred
from broker.loop.turns import ELEMENTS_AT_ONCE, Work, at_once_or_in_turns
from tests.support.turns import run, started


def counted(pieces_count: int) -> Work:
    for _ in range(pieces_count):
        yield
    return pieces_count


def awaiting(*deferreds: Deferred) -> Work:
    values: list[Any] = []
    for deferred in deferreds:
        try:
            values.append((yield deferred))
        except ValueError as e:
            values.append(str(e))
        yield
    return values


def test_a_few_elements_are_done_at_once() -> None:
    assert at_once_or_in_turns(counted(ELEMENTS_AT_ONCE - 1)) == ELEMENTS_AT_ONCE - 1


def test_the_rest_of_many_elements_goes_in_turns() -> None:
    work = at_once_or_in_turns(counted(ELEMENTS_AT_ONCE + 95))

    assert run(work) == (ELEMENTS_AT_ONCE + 95, 96)


def test_what_an_element_waits_for_is_waited_for_in_turns() -> None:
    first, second = Deferred(), Deferred()

    work = at_once_or_in_turns(awaiting(first, second))
    assert isinstance(work, GeneratorType)
    answer = started(work)
    first.complete("first")
    assert not answer.is_done
    second.complete(ValueError("second"))

    assert answer.take() == ["first", "second"]


def completed(value: Any) -> Deferred:
    deferred = Deferred()
    deferred.complete(value)
    return deferred


def test_what_is_complete_already_is_not_waited_for() -> None:
    work = awaiting(completed("first"), completed(ValueError("second")), completed(None))

    assert at_once_or_in_turns(work) == ["first", "second", None]


def test_what_is_complete_at_the_last_yield_at_once_is_not_lost() -> None:
    work = at_once_or_in_turns(awaiting(completed("first")), 1)

    assert started(work).take() == ["first"]


def test_work_that_waits_is_closed_with_its_turn() -> None:
    closed: list[bool] = []

    def work() -> Work:
        try:
            yield Deferred()
        finally:
            closed.append(True)

    answer = started(at_once_or_in_turns(work()))
    answer.abandon()

    assert closed == [True]


def test_what_work_raises_before_it_waits_is_raised_at_once() -> None:
    def work() -> Work:
        raise ValueError("no")
        yield

    with pytest.raises(ValueError, match="no"):
        at_once_or_in_turns(work())
