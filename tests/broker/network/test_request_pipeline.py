"""The order rules of one connection: answers in request order, only produces run ahead, everything bounded."""

from __future__ import annotations

from typing import Any

from broker.deferred import Deferred
from broker.network.request_pipeline import PARKED_PRODUCES_MAX, RequestPipeline

PRODUCE = b"\x00\x00"
FETCH = b"\x00\x01"


class Wire:
    """A pipeline, the requests that it started and the answers that it sent. A request named `now…` is answered at once."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.sent: list[str] = []
        self.parked: dict[str, Deferred] = {}
        self.ready_count = 0
        self.errors: list[BaseException] = []
        self.pipeline = RequestPipeline(
            start=self._start, send=lambda chunks: self.sent.extend(chunks), on_ready=self._ready, on_error=self.errors.append
        )

    def _start(self, frame: memoryview) -> Any:
        name = bytes(frame[2:]).decode()
        self.started.append(name)
        if name.startswith("now"):
            return [name]
        if name.startswith("silent"):
            return None
        self.parked[name] = Deferred()
        return self.parked[name]

    def _ready(self) -> None:
        self.ready_count += 1

    def offer(self, kind: bytes, name: str) -> bool:
        return self.pipeline.offer(memoryview(kind + name.encode()))

    def answer(self, name: str) -> None:
        self.parked[name].complete([name])


def test_a_request_behind_a_parked_fetch_waits_its_turn() -> None:
    wire = Wire()
    wire.offer(FETCH, "fetch")

    assert wire.offer(PRODUCE, "now-produce") is False
    assert wire.started == ["fetch"]
    wire.answer("fetch")

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

    assert wire.sent == ["a", "b", "now-fetch"]


def test_parked_produces_are_limited() -> None:
    wire = Wire()
    for i in range(PARKED_PRODUCES_MAX):
        assert wire.offer(PRODUCE, f"p{i}")

    assert wire.offer(PRODUCE, "one-more") is False
    wire.answer("p0")

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

    assert wire.sent == ["now-a"]
    assert wire.ready_count == 1


def test_a_completion_inside_another_request_does_not_ask_for_more_frames() -> None:
    wire = Wire()
    wire.offer(PRODUCE, "a")

    wire.answer("a")

    assert wire.ready_count == 0


def test_an_error_of_a_request_that_waited_reaches_on_error() -> None:
    wire = Wire()
    wire.offer(FETCH, "fetch")
    wire.offer(FETCH, "now-bad")
    wire.pipeline._start = lambda frame: 1 / 0

    wire.answer("fetch")

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
