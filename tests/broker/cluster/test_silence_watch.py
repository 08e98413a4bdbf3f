"""Whom a node finds silent: those that leave a question open for four ticks, and nobody because of a pause of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.cluster.peer_connections import PeerConnections
from broker.cluster.silence_watch import TICKS_WITHOUT_ANSWER, SilenceWatch, ask_once
from broker.network.client import PeerConnection
from protocol.messages.api_versions import ApiVersionsResponse
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

TICK_MS = 100
SILENCE_MS = 6 * TICK_MS
ADDRESSES = {2: ("node-2", 9092), 3: ("node-3", 9092)}
ANSWER = ApiVersionsResponse()


class PausingClock(ManualClock):
    """`lost_ms` have passed while this node stood still: its timers come late by them."""

    lost_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.lost_ms


@stands_for(PeerConnection, own=("open",))
class Connection:
    def __init__(self) -> None:
        self.open: list[Callable[[Any | None], None]] = []

    def send(
        self, message: Any, on_answer: Callable[[Any | None], None], *, version: int | None = None, timeout_ms: int | None = None
    ) -> None:
        self.open.append(on_answer)


@stands_for(PeerConnections, own=("made", "dropped"))
class Connections:
    def __init__(self) -> None:
        self.made: dict[tuple[str, int], Connection] = {}
        self.dropped: list[tuple[str, int]] = []

    def get(self, host: str, port: int) -> Connection:
        return self.made.setdefault((host, port), Connection())

    def drop(self, host: str, port: int) -> None:
        connection = self.made.pop((host, port), None)
        if connection is not None:
            self.dropped.append((host, port))

    async def close(self) -> None:
        self.made.clear()


class Room:
    """Nodes 2 and 3 are watched; `deaf` are those that do not answer."""

    def __init__(self) -> None:
        self.clock = PausingClock()
        self.connections = Connections()
        self.targets = dict(ADDRESSES)
        self.deaf: set[int] = set()
        self.told: list[set[int]] = []
        connections: Any = self.connections
        self.watch = SilenceWatch(
            connections, self.clock, lambda: self.targets, lambda silent: self.told.append(set(silent)), silence_ms=SILENCE_MS
        )
        self.watch.start()

    def answer(self, node_id: int, response: Any | None = ANSWER) -> None:
        connection = self.connections.made.get(ADDRESSES[node_id])
        while connection is not None and connection.open:
            connection.open.pop(0)(response)

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.advance(TICK_MS)
            for node_id in set(ADDRESSES) - self.deaf:
                self.answer(node_id)


def test_a_node_that_leaves_a_question_open_for_four_ticks_is_silent_until_it_answers() -> None:
    room = Room()
    room.tick(3)
    room.deaf.add(2)
    room.tick(TICKS_WITHOUT_ANSWER)
    assert room.told == []

    room.tick()
    assert room.told == [{2}]

    room.deaf.clear()
    room.tick(2)
    assert room.told == [{2}, set()]


def test_one_question_at_a_time_is_open() -> None:
    room = Room()
    room.deaf.add(2)

    room.tick(10)

    assert len(room.connections.made[ADDRESSES[2]].open) == 1


def test_a_pause_of_its_own_makes_nobody_silent() -> None:
    room = Room()
    room.deaf |= {2, 3}
    room.tick(2)

    room.clock.lost_ms += 50 * TICK_MS
    room.tick()
    room.deaf.clear()
    room.tick(10)

    assert room.told == []


def test_who_was_silent_before_a_pause_of_its_own_has_the_whole_time_again() -> None:
    room = Room()
    room.deaf.add(2)
    room.tick(1 + TICKS_WITHOUT_ANSWER)
    assert room.told == [{2}]

    room.clock.lost_ms += 50 * TICK_MS
    room.tick(TICKS_WITHOUT_ANSWER)
    assert room.told == [{2}, set()]
    room.tick()

    assert room.told == [{2}, set(), {2}]


def test_a_connection_that_ends_or_is_refused_says_nothing() -> None:
    room = Room()
    room.deaf.add(2)

    for _ in range(20):
        room.tick()
        room.answer(2, None)

    assert room.told == []


def test_a_node_that_is_watched_no_more_is_forgotten() -> None:
    room = Room()
    room.deaf.add(2)
    room.tick(1 + TICKS_WITHOUT_ANSWER)

    del room.targets[2]
    room.tick()

    assert (room.told, room.connections.dropped) == ([{2}, set()], [ADDRESSES[2]])


class Question:
    """The controller's own, to node 2."""

    def __init__(self) -> None:
        self.clock = PausingClock()
        self.connections = Connections()
        self.told: list[bool] = []
        connections: Any = self.connections
        ask_once(connections, self.clock, ADDRESSES[2], TICK_MS, self.told.append)

    def answer(self, response: Any | None) -> None:
        self.connections.made[ADDRESSES[2]].open.pop()(response)


def test_who_does_not_answer_a_question_within_its_time_is_silent() -> None:
    question = Question()
    question.clock.advance(TICK_MS - 1)
    assert question.told == []

    question.clock.advance(1)

    assert (question.told, question.connections.dropped) == ([True], [ADDRESSES[2]])


@pytest.mark.parametrize("response", [ANSWER, None], ids=["an answer", "the end of the connection"])
def test_an_answer_or_the_end_of_the_connection_ends_the_question(response: Any | None) -> None:
    question = Question()
    question.answer(response)
    question.clock.advance(10 * TICK_MS)

    assert question.told == [False]


def test_a_question_proves_nothing_if_the_asker_was_paused() -> None:
    question = Question()
    question.clock.lost_ms += 10 * TICK_MS

    question.clock.advance(TICK_MS)

    assert question.told == [False]
