"""Long requests share the loop slice by slice."""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import pytest

from broker.deferred import Deferred
from broker.freeing import FREED_PER_PIECE, emptied
from broker.spread_dict import SpreadDict
from broker.turns import SLICE_US, Turns
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.broker.turn_loop import TurnLoop


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


def test_what_abandoned_work_has_collected_is_freed_in_pieces() -> None:
    """What was decoded of a large request is freed at once with the generator otherwise, when its connection closes."""
    loop = Loop()
    shared = [0] * 10 * FREED_PER_PIECE
    freed: list[int] = []

    class Element:
        def __del__(self) -> None:
            freed.append(1)

    def inner() -> Generator[None, None, Any]:
        collected = [Element() for _ in range(10 * FREED_PER_PIECE)]
        others = shared
        while True:
            loop.now_us += SLICE_US
            yield
            assert collected and others

    def outer() -> Generator[None, None, Any]:
        return (yield from inner())

    answer = loop.turns.start(outer())
    loop.turn()
    answer.abandon()
    freed_at_once = len(freed)
    while loop.scheduled:
        loop.turn()

    assert freed_at_once == 0
    assert len(freed) == len(shared) == 10 * FREED_PER_PIECE
    assert len(loop.turns) == 0


def test_what_abandoned_work_has_in_mappings_objects_and_tuples_is_freed_in_pieces() -> None:
    loop = Loop()
    freed: list[int] = []
    count = 10 * FREED_PER_PIECE

    class Element:
        def __del__(self) -> None:
            freed.append(1)

    class Answer:
        def __init__(self) -> None:
            self.elements = [Element() for _ in range(count)]

    class Slotted:
        __slots__ = ("elements",)

        def __init__(self) -> None:
            self.elements = [Element() for _ in range(count)]

    kept = Answer()

    def work() -> Generator[None, None, Any]:
        places = SpreadDict[int, Element]()
        for index in range(count):
            places[index] = Element()
        answer, slotted, shared = Answer(), Slotted(), kept
        pair = ({index: Element() for index in range(count)}, 1)
        while True:
            loop.now_us += SLICE_US
            yield
            assert all((places, answer, slotted, shared, pair))

    abandoned = loop.turns.start(work())
    loop.turn()
    abandoned.abandon()
    freed_at_once = len(freed)
    while loop.scheduled:
        loop.turn()

    assert freed_at_once == 0
    assert len(freed) == 4 * count
    assert len(kept.elements) == count


def test_the_request_of_abandoned_work_is_freed_in_pieces() -> None:
    """Its long array is inside a short one. What another holds too is left alone."""
    loop = Loop()
    freed: list[int] = []
    kept = FetchTopic(topic="kept", partitions=[])

    class Element:
        def __del__(self) -> None:
            freed.append(1)

    def work(request: FetchRequest) -> Generator[None, None, Any]:
        while True:
            loop.now_us += SLICE_US
            yield
            assert request.topics

    for count in (10 * FREED_PER_PIECE, 3):
        kept.partitions = [FetchPartition(partition=1)]
        topics = [FetchTopic(topic="t", partitions=[Element() for _ in range(count)]), kept]
        answer = loop.turns.start(work(FetchRequest(topics=topics)))
        del topics
        freed.clear()
        loop.turn()
        answer.abandon()
        freed_at_once = len(freed)
        while loop.scheduled:
            loop.turn()

        assert freed_at_once == 0
        assert len(freed) == count
        assert len(kept.partitions) == 1
        assert len(loop.turns) == 0


def test_what_holds_the_answer_that_work_came_to_is_freed_in_pieces_when_nobody_waits_for_it() -> None:
    """As a parked Fetch of very many partitions does: an operation, what it looks at, and the closures that would answer."""
    loop = Loop()
    freed: list[int] = []
    count = 10 * FREED_PER_PIECE
    kept: list[Any] = []

    class Element:
        def __del__(self) -> None:
            freed.append(1)

    class Operation:
        def __init__(self, on_done: Any) -> None:
            self.targets = {index: Element() for index in range(count)}
            self.on_done = on_done

    def work() -> Generator[None, None, Any]:
        reads = [Element() for _ in range(count)]
        deferred = Deferred()
        operation = Operation(lambda: deferred.complete(reads))
        deferred.on_abandon = lambda: kept.remove(operation)
        kept.append(operation)
        loop.now_us += SLICE_US
        yield
        return deferred

    answer = loop.turns.start(work())
    while loop.scheduled:
        loop.turn()
    assert not answer.is_done
    answer.abandon()
    freed_at_once = len(freed)
    while loop.scheduled:
        loop.turn()

    assert freed_at_once == 0
    assert len(freed) == 2 * count
    assert kept == []


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


def test_owner_is_told_while_works_wait_for_their_turns() -> None:
    """The garbage collector pauses then."""
    loop = TurnLoop()
    told: list[bool] = []
    turns = Turns(loop.call_soon, loop.monotonic_us, told.append)

    turns.start(loop_work(1, "short"))
    assert told == []
    turns.start(loop_work(10, "long"))
    turns.start(loop_work(10, "another")).abandon()
    assert told == [True]
    loop.run()

    assert told == [True, False]


def test_containers_are_emptied_in_pieces() -> None:
    numbers, names = list(range(2 * FREED_PER_PIECE + 1)), dict.fromkeys(range(2 * FREED_PER_PIECE))

    pieces = sum(1 for _ in emptied(numbers, names))

    assert (numbers, names, pieces) == ([], {}, 5)


def loop_work(pieces: int, result: Any) -> Generator[None, None, Any]:
    for _ in range(pieces):
        yield
    return result


def test_a_work_that_waits_for_a_deferred_is_not_finished_and_so_keeps_the_works_busy() -> None:
    told: list[bool] = []
    scheduled: deque[Callable[[], Any]] = deque()
    turns = Turns(scheduled.append, lambda: 0, told.append)
    awaited, dropped = Deferred(), Deferred()

    def work(awaited: Deferred) -> Generator[Deferred | None, Any, Any]:
        return (yield awaited)

    answer = turns.start(work(awaited))
    abandoned = turns.start(work(dropped))
    assert told == [True]
    awaited.complete("value")
    while scheduled:
        scheduled.popleft()()
    assert answer.take() == "value"
    assert told == [True]
    abandoned.abandon()

    assert told == [True, False]


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
