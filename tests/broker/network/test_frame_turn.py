"""Pipelined requests share the turns of the loop: their order and their answers stay the same."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from broker.network.context import ConnectionFacts
from broker.network.frame_turn import TURN_US, FrameTurn
from protocol.framing import FRAMES_PER_QUESTION
from tests.broker.network.harness import Harness, framed, run, serving

FRAME_MS = 1
FRAMES_PER_TURN = TURN_US // 1000 // FRAME_MS
CONNECTIONS = 10
MANY_CONNECTIONS = 40
FRAMES = 60


class SlowHandler:
    """Echoes, and each frame takes FRAME_MS. Notes how many frames the turns of the loop had."""

    def __init__(self) -> None:
        self.harness: Harness | None = None
        self.frames: list[bytes] = []
        self.frames_by_turn = [0]

    def __call__(self, frame: memoryview, facts: ConnectionFacts) -> Any:
        assert self.harness is not None
        self.harness.clock.advance(FRAME_MS)
        if not self.frames_by_turn[-1]:
            asyncio.get_running_loop().call_soon(self.frames_by_turn.append, 0)
        self.frames_by_turn[-1] += 1
        self.frames.append(bytes(frame))
        return [framed(bytes(frame))]


def bodies(connection: int) -> list[bytes]:
    return [b"%d-%d" % (connection, number) for number in range(FRAMES)]


def test_a_turn_ends_when_its_time_is_over_and_the_next_begins_with_the_first_question() -> None:
    now_us = 0
    scheduled: list[Any] = []
    turn = FrameTurn(scheduled.append, lambda: now_us * 1_000)

    assert turn.has_time_left()
    now_us = TURN_US - 1
    assert turn.has_time_left()
    now_us = TURN_US
    assert not turn.has_time_left()
    scheduled.pop()()
    assert turn.has_time_left()
    assert len(scheduled) == 1


def test_those_that_wait_go_on_in_their_order_as_many_in_a_turn_as_its_time_allows() -> None:
    now_us = 0
    scheduled: list[Any] = []
    went_on: list[str] = []
    turn = FrameTurn(scheduled.append, lambda: now_us * 1_000)

    def go_on(name: str, *, waits_again: bool = False) -> None:
        nonlocal now_us
        now_us += TURN_US // 2
        went_on.append(name)
        if waits_again:
            turn.wait(lambda: go_on(name))

    def run_turn() -> list[str]:
        went_on.clear()
        due = scheduled[:]
        scheduled.clear()
        for callback in due:
            callback()
        return went_on[:]

    turn.wait(lambda: go_on("first", waits_again=True))
    for name in ("second", "third"):
        turn.wait(lambda name=name: go_on(name))

    assert run_turn() == ["first", "second"]
    assert run_turn() == ["third", "first"]
    assert run_turn() == []
    assert not scheduled


def test_one_that_waits_goes_on_even_if_others_have_used_up_the_turn() -> None:
    now_us = 0
    scheduled: list[Any] = []
    went_on: list[str] = []
    turn = FrameTurn(scheduled.append, lambda: now_us * 1_000)
    turn.has_time_left()
    now_us = TURN_US
    turn.wait(lambda: went_on.append("first"))
    turn.wait(lambda: went_on.append("second"))

    scheduled.pop()()

    assert went_on == ["first"]


def test_connections_that_pipeline_share_one_turn_however_many_they_are() -> None:
    """Each connection handled one frame in each turn at least: 13 ms for a hundred that ask for Metadata without end."""
    handler = SlowHandler()

    async def test() -> int:
        async with serving(handler) as handler.harness:
            clients = [await handler.harness.connect() for _ in range(MANY_CONNECTIONS)]
            for number, (reader, writer) in enumerate(clients):
                writer.write(b"".join(framed(body) for body in bodies(number)))
                await reader.readexactly(len(framed(bodies(number)[0])))
            begun = len(handler.frames_by_turn)
            for number, (reader, _) in enumerate(clients):
                await reader.readexactly(sum(len(framed(body)) for body in bodies(number)[1:]))
            return begun

    begun = run(test)

    later_turns = handler.frames_by_turn[begun:]
    assert len(handler.frames) == MANY_CONNECTIONS * FRAMES
    assert sum(later_turns) > MANY_CONNECTIONS * FRAMES // 2
    assert max(later_turns) <= FRAMES_PER_TURN + FRAMES_PER_QUESTION


def test_requests_that_many_connections_pipeline_are_spread_over_turns_and_answered_in_order() -> None:
    handler = SlowHandler()

    async def test() -> None:
        async with serving(handler) as handler.harness:
            clients = [await handler.harness.connect() for _ in range(CONNECTIONS)]
            for number, (_, writer) in enumerate(clients):
                writer.write(b"".join(framed(body) for body in bodies(number)))
            for number, (reader, _) in enumerate(clients):
                expected = b"".join(framed(body) for body in bodies(number))
                assert await reader.readexactly(len(expected)) == expected

    run(test)

    assert len(handler.frames) == CONNECTIONS * FRAMES
    assert max(handler.frames_by_turn) <= FRAMES_PER_TURN + FRAMES_PER_QUESTION + CONNECTIONS


def test_what_a_client_sent_before_it_stopped_sending_is_answered() -> None:
    handler = SlowHandler()

    async def test() -> None:
        async with serving(handler) as handler.harness:
            reader, writer = await handler.harness.connect()
            writer.write(b"".join(framed(body) for body in bodies(0)) + b"\x00\x00")  # and half a frame
            writer.write_eof()
            await reader.read()

    run(test)

    assert handler.frames == bodies(0)


def test_a_frame_that_is_received_in_part_is_completed_after_the_turns_of_those_before_it() -> None:
    handler = SlowHandler()
    large = b"x" * 100_000

    async def test() -> None:
        async with serving(handler) as handler.harness:
            reader, writer = await handler.harness.connect()
            writer.write(b"".join(framed(body) for body in bodies(0)) + framed(large) + framed(b"last"))
            while await reader.readexactly(int.from_bytes(await reader.readexactly(4))) != b"last":
                pass

    run(test)

    assert handler.frames == [*bodies(0), large, b"last"]


def test_nothing_is_started_for_a_client_that_is_gone() -> None:
    handler = SlowHandler()

    async def test() -> None:
        async with serving(handler) as handler.harness:
            registry = handler.harness.registry
            with socket.create_connection(("127.0.0.1", handler.harness.listener.port)) as client:
                client.sendall(b"".join(framed(body) for body in bodies(0)))
                while not handler.frames:
                    await asyncio.sleep(0)
            for connection in list(registry._connections):
                connection.close("for the test")
            handled_count = len(handler.frames)
            while len(registry):
                await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(handler.frames) == handled_count < FRAMES

    run(test)
