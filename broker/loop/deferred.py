"""A response that is not ready yet: a handler returns it when its request waits in a purgatory or for a coordinator.

A Deferred is cheaper than a Future and synchronous: `complete` runs the callback at once, in the caller's stack, so responses leave in the
order of completions. One Deferred has one consumer (dispatch) and one producer (the code that parked the request).

The producer completes it in the middle of its own work. So the callback only encodes, sends and takes notes: it starts no request and
changes no state of the broker. RequestPipeline starts the next request in a later turn of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final


@final
class Deferred:
    """One value to come. Completed at most once; completing again is a bug and asserts.

    `on_abandon`, if set by the producer, is called once when the consumer loses interest (its connection closed) before
    completion, so that the parked operation leaves its purgatory.

    `complete` drops its references to value and callback. Either may refer back to this object (an exception by its traceback, a callback
    by its closure), and such a cycle would outlive the request.

    `holds_order`, set by the producer, says that the request has not had its effect yet. Until then no later request of the connection
    may start, not even a Produce behind a Produce. `release_order`, which calls `on_order_released`, or completion ends it.
    """

    __slots__ = ("_callback", "holds_order", "is_done", "on_abandon", "on_order_released", "value")

    def __init__(self) -> None:
        self.is_done = False
        self.value: Any = None
        self.on_abandon: Callable[[], None] | None = None
        self.on_order_released: Callable[[], None] | None = None
        self.holds_order = False
        self._callback: Callable[[Any], None] | None = None

    def complete(self, value: Any) -> None:
        """Hand over `value`: a response message, or an exception instance, which dispatch treats as if the handler had raised it."""
        assert not self.is_done, "a Deferred completes once"
        self.is_done = True
        self.on_abandon = None
        self.holds_order = False
        self.on_order_released = None
        callback = self._callback
        if callback is None:
            self.value = value
        elif callback is not _ignore:
            self._callback = _handed_over
            callback(value)

    def resolve(self, compute: Callable[..., Any], *arguments: Any) -> None:
        """Complete with what `compute` returns or raises. The caller only ended the wait, so a failed response must not fail the caller."""
        try:
            value = compute(*arguments)
        except Exception as e:
            self.complete(e)
            return
        self.complete(value)

    def follow(self, outcome: Any) -> None:
        """Complete with `outcome`, or, when that is a Deferred, with whatever it completes with."""
        if isinstance(outcome, Deferred):
            self.on_abandon = outcome.abandon
            outcome.when_done(self.complete)
            if not outcome.holds_order:
                self.release_order()
        else:
            self.complete(outcome)

    def release_order(self) -> None:
        """The request has had its effect and waits only for its response: the connection's next request may start."""
        if self.holds_order:
            self.holds_order = False
            if self.on_order_released is not None:
                self.on_order_released()

    @property
    def is_abandoned(self) -> bool:
        """Whether the consumer has lost interest in the value."""
        return self._callback is _ignore

    def take(self) -> Any:
        """Hand over the value of a Deferred that is complete and has no callback. Raises it if it is an exception."""
        assert self.is_done and self._callback is None, "take() needs a completed value that was not handed over yet"
        value, self.value = self.value, None
        self._callback = _handed_over
        if isinstance(value, Exception):
            try:
                raise value
            finally:
                del value  # else this frame, which the traceback holds, would hold the exception
        return value

    def when_done(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(value)` on completion, at once if already complete."""
        assert self._callback is None, "a Deferred has one consumer"
        if not self.is_done:
            self._callback = callback
            return
        self._callback = _handed_over
        value, self.value = self.value, None
        callback(value)

    def abandon(self) -> None:
        """The consumer is gone. A later completion is ignored."""
        self._callback = _ignore
        self.on_order_released = None
        self.value = None
        if not self.is_done and self.on_abandon is not None:
            on_abandon, self.on_abandon = self.on_abandon, None
            on_abandon()


def _ignore(_value: Any) -> None:
    pass


def _handed_over(_value: Any) -> None:
    raise AssertionError("a Deferred completes once")
