"""Requests to the active controller on another node: asked again while nobody leads, given up when another leads, and nothing is left."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import pytest

from broker.cluster.controller_route import RETRY_MS, ActiveController, ControllerRoute
from broker.cluster.peer_connections import PeerConnections
from broker.network.client import PeerConnection
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tests.broker.cluster.fake_network import let_time_pass
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for

ME = 1
SECOND, THIRD = ActiveController(2, "second", 9093), ActiveController(3, "third", 9093)
RETRY_TIMEOUT_MS = 1_000


@stands_for(PeerConnection, own=("answers", "asked", "on_lost"))
class Connection:
    """Gives the next of `answers`, later; nothing when there are none left, until it is closed."""

    def __init__(self, answers: list[Any | None]) -> None:
        self.answers = answers
        self.asked: list[Callable[[Any | None], None]] = []
        self.on_lost: Callable[[], None] = lambda: None

    def send(
        self, message: Any, on_answer: Callable[[Any | None], None], *, version: int | None = None, timeout_ms: int | None = None
    ) -> None:
        if self.answers:
            asyncio.get_running_loop().call_soon(on_answer, self.answers.pop(0))
        else:
            self.asked.append(on_answer)

    def close(self) -> None:
        while self.asked:
            asyncio.get_running_loop().call_soon(self.asked.pop(), None)


class World:
    """`active` leads; `answers` are what each host answers."""

    def __init__(self, active: ActiveController | None, **answers: list[Any | None]) -> None:
        self.clock = ManualClock()
        self.active = active
        make: Any = lambda host, port, run: Connection(answers.get(host, []))  # noqa: E731
        self.route = ControllerRoute(
            lambda: self.active, PeerConnections(make), self.clock, local=None, node_id=ME, retry_timeout_ms=RETRY_TIMEOUT_MS
        )

    def ask(self) -> asyncio.Task[BrokerHeartbeatResponse]:
        return asyncio.ensure_future(self.route.broker_heartbeat(BrokerHeartbeatRequest()))


@pytest.fixture
def collector_is_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_node_that_is_not_the_controller_any_more_is_asked_again() -> None:
    refusal = BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)
    world = World(SECOND, second=[refusal, None, BrokerHeartbeatResponse(is_fenced=False)])

    asking = world.ask()
    await let_time_pass(world.clock, 3 * RETRY_MS)

    assert not asking.result().is_fenced


async def test_a_controller_that_is_silent_is_given_up_once_another_leads() -> None:
    world = World(SECOND, third=[BrokerHeartbeatResponse(is_caught_up=True)])
    asking = world.ask()
    await let_time_pass(world.clock, 4 * RETRY_MS)
    assert not asking.done()

    world.active = THIRD
    await let_time_pass(world.clock, 3 * RETRY_MS)

    assert asking.result().is_caught_up


async def test_a_request_is_given_up_when_nobody_leads_for_long() -> None:
    world = World(None)

    asking = world.ask()
    await let_time_pass(world.clock, RETRY_TIMEOUT_MS + RETRY_MS)

    error = asking.exception()
    assert isinstance(error, KafkaError) and error.code is ErrorCode.NOT_CONTROLLER
    assert error.__cause__ is not error, "the exception would stay in memory until the collector runs"


async def test_an_answered_request_leaves_no_cycle_behind(collector_is_off: None) -> None:
    world = World(SECOND, second=[BrokerHeartbeatResponse()])

    asking = world.ask()
    await let_time_pass(world.clock, 2 * RETRY_MS)
    asking.result()

    functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
    left = [each for each in functions if "ControllerRoute._answer_of.<locals>" in each.__qualname__]
    assert left == []
