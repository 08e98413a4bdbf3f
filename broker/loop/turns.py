"""Long requests take turns, so that no client holds the loop.

A handler whose request can be large returns a generator. It yields after each element, so that other requests are served between two
elements, and returns the response. An element takes well under a millisecond. After a yield everything may have changed.
It yields None, or a Deferred that it waits for: `value = yield deferred`. The Deferred's exception is raised at the yield.

All long requests share one queue. Each turn of the loop gives SLICE_US to the requests that have waited longest: to one, or, if it ends or
waits before that, to the next ones too. A connection has one such request at a time, so the queue is fair by connection, and a hundred long
requests hold the loop no longer than one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from types import GeneratorType
from typing import Any, TypeVar

from broker.loop.deferred import Deferred

SLICE_US = 5_000
"""Microseconds of work before the loop serves its connections again. The step up to the next yield is finished first."""

ELEMENTS_AT_ONCE = 500
"""Elements that a request may process at once, before it takes turns: 0.5 to 5 ms of work."""

IDS_AT_ONCE = 4
"""The same for ids of groups or transactions: the hash of the longest takes two milliseconds."""

Element = TypeVar("Element")
Made = TypeVar("Made")

Work = Generator[Any, Any, Any]
"""Yields None or a Deferred."""


class Turns:
    """The queue. `call_soon` is the loop's; `monotonic_us` measures how long a slice has lasted."""

    __slots__ = ("_call_soon", "_is_running", "_is_scheduled", "_monotonic_us", "_queue", "_waiting")

    def __init__(
        self,
        call_soon: Callable[..., Any],
        monotonic_us: Callable[[], int],
    ) -> None:
        self._call_soon = call_soon
        self._monotonic_us = monotonic_us
        self._queue: dict[Deferred, tuple[Work, Any]] = {}  # in the order of turns, each with the value that its yield returns
        self._waiting: dict[Deferred, tuple[Work, Deferred]] = {}  # each with the Deferred that it waits for
        self._is_scheduled = False
        self._is_running = False

    def __len__(self) -> int:
        """Works that are not finished."""
        return len(self._queue) + len(self._waiting)

    def start(self, work: Work) -> Deferred:
        """A Deferred of what `work` returns or raises. It is complete already if no other work waits and one slice was enough. It holds
        the order of its connection until it is complete.

        Abandoning the Deferred ends the work where it stands: GeneratorExit is raised at its yield."""
        answer = Deferred()
        answer.on_abandon = lambda: self._drop(answer)
        answer.holds_order = True
        if self._queue or self._is_running:
            self._enqueue(answer, work)
        else:
            self._run_slice(answer, work, None, self._monotonic_us() + SLICE_US)
        return answer

    def close(self) -> None:
        """End every work where it stands. No Deferred is completed."""
        for answer in [*self._queue, *self._waiting]:
            work = self._take(answer)
            if work is not None:
                work.close()

    def _drop(self, answer: Deferred) -> None:
        work = self._take(answer)
        if work is not None:
            work.close()

    def _take(self, answer: Deferred) -> Work | None:
        """Take the work out of the queue, if it is not finished, and abandon the Deferred that it waits for."""
        if answer in self._queue:
            work, _ = self._queue.pop(answer)
            return work
        if answer in self._waiting:
            work, awaited = self._waiting.pop(answer)
            awaited.abandon()
            return work
        return None

    def _enqueue(self, answer: Deferred, work: Work, value: Any = None) -> None:
        self._queue[answer] = work, value
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_scheduled = False
        end_us = self._monotonic_us() + SLICE_US
        for _ in range(len(self._queue)):  # what is added meanwhile waits for the next turn
            if not self._queue:
                return
            answer = next(iter(self._queue))
            self._run_slice(answer, *self._queue.pop(answer), end_us)
            if self._monotonic_us() >= end_us:
                break
        if self._queue:
            self._schedule()

    def _run_slice(self, answer: Deferred, work: Work, value: Any, end_us: int) -> None:
        """Continue `work` until the time is over, it waits for a Deferred, or it ends. At its end `answer` is completed."""
        self._is_running = True  # work that starts meanwhile, because this one ends, waits for the next turn
        try:
            while True:
                awaited = work.throw(value) if isinstance(value, Exception) else work.send(value)
                value = None
                if awaited is not None:
                    if not awaited.is_done:
                        self._waiting[answer] = work, awaited
                        awaited.when_done(lambda value: self._resume(answer, value))
                        return
                    value = awaited.value
                if self._monotonic_us() >= end_us:
                    self._enqueue(answer, work, value)
                    return
        except StopIteration as e:
            self._finish(answer, e.value)
        except Exception as e:
            value = None  # it may be the exception, or its cause, whose traceback holds this frame
            self._finish(answer, e)
        finally:
            self._is_running = False

    def _finish(self, answer: Deferred, outcome: Any) -> None:
        answer.on_abandon = None
        answer.follow(outcome)
        if isinstance(outcome, Deferred) and not outcome.is_done:
            answer.on_abandon = outcome.abandon

    def _resume(self, answer: Deferred, value: Any) -> None:
        work, _ = self._waiting.pop(answer)
        self._enqueue(answer, work, value)


def is_many(lists: Iterable[Sized], limit: int) -> bool:
    """Whether the lists together hold more than `limit` elements. Each list counts as one more. Stops counting at the limit."""
    count = 0
    for elements in lists:
        count += 1 + len(elements)
        if count > limit:
            return True
    return False


def at_once_or_in_turns(work: Work, yields_count: int = ELEMENTS_AT_ONCE) -> Any:
    """The result of `work`, returned or raised, if it ends within `yields_count` yields without waiting for anything that is not there yet.
    Otherwise `work` itself, already begun, which dispatch continues in turns."""
    value: Any = None
    try:
        for _ in range(yields_count):
            awaited = work.throw(value) if isinstance(value, Exception) else work.send(value)
            value = None
            if awaited is not None:
                if not awaited.is_done:
                    return _awaiting(awaited, work)
                value = awaited.value
        return work if value is None else _awaiting(awaited, work)
    except StopIteration as e:
        return e.value
    finally:
        del value  # else this frame, which the traceback of an exception holds, would hold the exception


def at_once_or_in_turns_then(work: Work, yields_count: int, then: Callable[[Any], Any]) -> Any:
    """As `at_once_or_in_turns`, with `then` applied to the result of `work`. `then` may return another Work."""
    made = at_once_or_in_turns(work, yields_count)
    return _then(made, then) if type(made) is GeneratorType else then(made)


def _then(work: Work, then: Callable[[Any], Any]) -> Work:
    outcome = then((yield from work))
    return (yield from outcome) if type(outcome) is GeneratorType else outcome


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


def at_once(work: Generator[None, None, Made]) -> Made:
    """Run `work` to its end and return its result. The caller knows that the work is small."""
    while True:
        try:
            next(work)
        except StopIteration as e:
            made: Made = e.value
            return made


def make_in_turns(make: Callable[[Element], Made], elements: Sequence[Element]) -> Generator[None, None, list[Made]]:
    """Returns the list of `make(element)`. Yields after each element."""
    made: list[Made] = []
    for element in elements:
        made.append(make(element))
        yield
    return made


def in_turns_if_many(response: Made, lists: Iterable[Sized], limit: int = ELEMENTS_AT_ONCE) -> Made | Generator[None, None, Made]:
    """The response itself, or, if its `lists` hold more than `limit` elements, a generator that returns it: dispatch then encodes it in
    slices."""
    return _in_turns(response) if is_many(lists, limit) else response


def _in_turns(response: Made) -> Generator[None, None, Made]:
    yield
    return response
