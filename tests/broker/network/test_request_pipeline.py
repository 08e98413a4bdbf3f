"""The order rules of one connection: answers in request order, only produces run ahead, everything bounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.loop.deferred import Deferred
from broker.network.request_pipeline import PARKED_PRODUCES_MAX, Chunks, RequestPipeline

PRODUCE = b"\x00\x00"
FETCH = b"\x00\x01"


class Wire:
    """A pipeline, the requests that it started and the answers that it sent. A request named `now…` is answered at once.

    `turn` is the next turn of the loop; `parked` requests are answered by `answer`, as if from the inside of somebody's operation."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.sent: list[str] = []
        self.parked: dict[str, Deferred] = {}
        self.ready_count = 0
        self.errors: list[BaseException] = []
        self.scheduled: list[Callable[[], None]] = []
        self.pipeline = RequestPipeline(
            start=self._start, send=self._send, on_ready=self._ready, on_error=self.errors.append, schedule=self.scheduled.append
        )

    def _start(self, frame: memoryview) -> Chunks | Deferred | None:
        name = bytes(frame[2:]).decode()
        self.started.append(name)
        if name.startswith("now"):
            return [name]
        if name.startswith("silent"):
            return None
        if name.startswith("bad"):
            raise ZeroDivisionError(name)
        self.parked[name] = Deferred()
        return self.parked[name]

    def _send(self, chunks: Chunks) -> None:
        self.sent.extend(chunks)

    def _ready(self) -> None:
        self.ready_count += 1

    def offer(self, kind: bytes, name: str) -> bool:
        return self.pipeline.offer(memoryview(kind + name.encode()))

    def answer(self, name: str) -> None:
        self.parked[name].complete([name])

    def turn(self) -> None:
        scheduled, self.scheduled[:] = self.scheduled[:], []
        for callback in scheduled:
            callback()


def test_a_request_behind_a_parked_fetch_waits_its_turn() -> None:
    """sarama#2233: so does the SaslHandshake of a client that logs in again."""
    wire = Wire()
    wire.offer(FETCH, "fetch")

    assert wire.offer(PRODUCE, "now-produce") is False
    assert wire.started == ["fetch"]
    wire.answer("fetch")
    wire.turn()

    assert wire.sent == ["fetch", "now-produce"]
    assert wire.ready_count == 1


def test_produces_run_ahead_of_parked_produces_and_are_answered_in_order() -> None:
    wire = Wire()
    for name in ("a", "now-b", "c"):
        assert wire.offer(PRODUCE, name)

    wire.answer("c")
    assert wire.sent == []
    wire.answer("a")

    assert wire.sent == ["a", "now-b", "c"]


def test_a_fetch_waits_behind_parked_produces() -> None:
    wire = Wire()
    wire.offer(PRODUCE, "a")
    wire.offer(PRODUCE, "b")

    assert wire.offer(FETCH, "now-fetch") is False
    wire.answer("a")
    assert wire.started == ["a", "b"]
    wire.answer("b")
    wire.turn()

    assert wire.sent == ["a", "b", "now-fetch"]


def test_parked_produces_are_limited() -> None:
    wire = Wire()
    for i in range(PARKED_PRODUCES_MAX):
        assert wire.offer(PRODUCE, f"p{i}")

    assert wire.offer(PRODUCE, "one-more") is False
    wire.answer("p0")
    wire.turn()

    assert wire.started[-1] == "one-more"


def test_no_response_leaves_no_place_in_the_order() -> None:
    wire = Wire()
    wire.offer(PRODUCE, "silent")
    wire.offer(PRODUCE, "now-a")

    assert wire.sent == ["now-a"]


def test_nothing_starts_while_the_peer_does_not_read() -> None:
    wire = Wire()
    wire.pipeline.block()

    assert wire.offer(PRODUCE, "now-a") is False
    assert wire.started == []
    wire.pipeline.unblock()
    wire.turn()

    assert wire.sent == ["now-a"]
    assert wire.ready_count == 1


def test_a_completion_inside_another_request_does_not_ask_for_more_frames() -> None:
    wire = Wire()
    wire.offer(PRODUCE, "a")

    wire.answer("a")
    wire.turn()

    assert wire.ready_count == 0


def test_an_error_of_a_request_that_waited_reaches_on_error() -> None:
    wire = Wire()
    wire.offer(FETCH, "fetch")
    wire.offer(FETCH, "bad")

    wire.answer("fetch")
    wire.turn()

    assert [type(e) for e in wire.errors] == [ZeroDivisionError]


def test_close_abandons_what_is_parked() -> None:
    wire = Wire()
    wire.offer(FETCH, "fetch")
    left: list[bool] = []
    wire.parked["fetch"].on_abandon = lambda: left.append(True)

    wire.pipeline.close()
    wire.answer("fetch")

    assert left == [True]
    assert wire.sent == []


def test_a_completion_sends_but_starts_nothing() -> None:
    """What completes a request may be in the middle of a loop over the very state that the next request changes."""
    wire = Wire()
    wire.offer(FETCH, "join")
    wire.offer(FETCH, "now-leave")

    wire.answer("join")
    assert wire.sent == ["join"]
    assert wire.started == ["join"]
    assert wire.pipeline.is_stopped
    assert wire.ready_count == 0
    wire.turn()

    assert wire.sent == ["join", "now-leave"]
    assert not wire.pipeline.is_stopped
    assert wire.ready_count == 1


def test_the_frame_that_waits_is_counted_until_it_starts() -> None:
    wire = Wire()
    wire.offer(FETCH, "fetch")
    wire.offer(FETCH, "now-more")

    wire.answer("fetch")
    assert wire.pipeline.waiting_size == len(FETCH + b"now-more")
    wire.turn()

    assert wire.pipeline.waiting_size == 0


def test_nothing_starts_once_closed_between_an_answer_and_the_next_turn() -> None:
    wire = Wire()
    wire.offer(FETCH, "fetch")
    wire.offer(FETCH, "now-more")
    wire.answer("fetch")

    wire.pipeline.close()
    wire.turn()

    assert wire.started == ["fetch"]
    assert wire.ready_count == 0


@pytest.mark.parametrize("is_unblocked_first", [False, True])
def test_nothing_starts_once_blocked_between_an_answer_and_the_next_turn(is_unblocked_first: bool) -> None:
    """Sending the answer may be what finds out that the peer does not read. It may read again before that turn, or after it."""
    wire = Wire()
    wire.offer(FETCH, "fetch")
    wire.offer(FETCH, "now-more")
    wire.answer("fetch")

    wire.pipeline.block()
    if is_unblocked_first:
        wire.pipeline.unblock()
        wire.turn()
    else:
        wire.turn()
        assert wire.started == ["fetch"]
        wire.pipeline.unblock()
        wire.turn()

    assert wire.sent == ["fetch", "now-more"]
    assert wire.ready_count == 1


def test_several_answers_before_the_next_turn_start_one_frame_once() -> None:
    wire = Wire()
    for name in ("a", "b"):
        wire.offer(PRODUCE, name)
    wire.offer(FETCH, "fetch")

    wire.answer("b")
    wire.answer("a")
    wire.turn()
    wire.turn()

    assert wire.started == ["a", "b", "fetch"]
    assert wire.ready_count == 1


def test_nothing_starts_behind_a_produce_that_has_yet_to_append() -> None:
    """It is checked in a thread, or goes in turns: a sequence that overtakes it is out of order."""
    wire = Wire()
    wire.offer(PRODUCE, "parked")
    wire.offer(PRODUCE, "long")
    wire.parked["long"].holds_order = True

    assert wire.offer(PRODUCE, "next") is False
    wire.parked["long"].release_order()
    assert wire.started == ["parked", "long"], "nothing starts from inside a completion"
    wire.turn()

    assert wire.started == ["parked", "long", "next"]
    assert wire.ready_count == 1


def test_a_produce_that_held_the_order_lets_go_when_it_is_answered() -> None:
    wire = Wire()
    wire.offer(PRODUCE, "parked")
    wire.offer(PRODUCE, "long")
    wire.parked["long"].holds_order = True
    wire.offer(PRODUCE, "next")

    wire.answer("long")
    wire.turn()

    assert wire.started == ["parked", "long", "next"]
    assert wire.sent == []
