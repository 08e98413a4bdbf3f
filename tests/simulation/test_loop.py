"""asyncio code runs on the simulated loop, in virtual time, and nodes can be killed and paused there."""

import asyncio
import time

import pytest

from tests.simulation.loop import DeadlockError, Life, LivelockError, SimulatedLoop
from tests.simulation.trace import Trace


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop(Trace())


def test_sleeping_an_hour_takes_no_time(loop: SimulatedLoop) -> None:
    began = time.monotonic()

    loop.run_until_complete(asyncio.sleep(3600))

    assert loop.time() == pytest.approx(3600)
    assert time.monotonic() - began < 60


def test_timeouts_and_tasks_are_asyncios_own(loop: SimulatedLoop) -> None:
    async def run() -> str:
        async def slow() -> None:
            await asyncio.sleep(10)

        task = asyncio.create_task(slow())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 1)
        return f"{loop.time():.1f}"

    assert loop.run_until_complete(run()) == "1.0"


def test_waiting_for_nothing_is_a_deadlock(loop: SimulatedLoop) -> None:
    with pytest.raises(DeadlockError):
        loop.run_until_complete(loop.create_future())


def test_polling_without_end_is_a_livelock(loop: SimulatedLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulation.loop.STEPS_WITHOUT_TIME_MAX", 100)

    async def poll() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(LivelockError):
        loop.run_until_complete(poll())


def test_a_killed_node_runs_nothing_more_not_even_its_finally(loop: SimulatedLoop) -> None:
    life = Life("node")
    done: list[str] = []

    async def work() -> None:
        loop.call_later(2, done.append, "timer")
        try:
            await asyncio.sleep(2)
            done.append("task")
        finally:
            done.append("finally")

    loop.start_in(life, work())
    loop.call_later(1, loop.kill, life)
    loop.run_until_complete(asyncio.sleep(5))

    assert done == []


def test_a_paused_node_runs_what_fell_due_when_it_is_resumed(loop: SimulatedLoop) -> None:
    life = Life("node")
    done: list[float] = []

    async def work() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            done.append(loop.time())

    loop.start_in(life, work())
    loop.call_later(1.5, loop.pause, life)
    loop.call_later(4.0, loop.resume, life)
    loop.run_until_complete(asyncio.sleep(10))

    assert done == pytest.approx([1.0, 4.0, 5.0])


def test_an_error_in_a_callback_is_kept(loop: SimulatedLoop) -> None:
    def fail() -> None:
        raise ValueError("broken")

    loop.call_soon(fail)
    loop.run_until_complete(asyncio.sleep(0))

    assert [str(context["exception"]) for context in loop.errors] == ["broken"]


def test_what_falls_due_while_a_callback_takes_time_comes_after_it_in_its_order(loop: SimulatedLoop) -> None:
    node, other = Life("node"), Life("other")
    done: list[tuple[str, int]] = []

    def note(what: str) -> None:
        done.append((what, loop.now_us))

    def work() -> None:
        note("work begins")
        loop.take_time(300)
        loop.call_soon(note, "soon")

    loop.call_in(node, work)
    loop.call_in_later(node, 0.000_1, note, "timer of the node")
    loop.call_in_later(other, 0.000_1, note, "timer of another")
    loop.call_in_later(None, 0.000_3, loop.run_in, node, note, "bytes")
    loop.run_until_complete(asyncio.sleep(0.001))

    assert done == [("work begins", 0), ("timer of another", 100), ("soon", 300), ("timer of the node", 300), ("bytes", 300)]


def test_a_node_that_is_paused_stays_so_when_its_callback_has_ended(loop: SimulatedLoop) -> None:
    node = Life("node")
    done: list[int] = []
    loop.call_in(node, loop.take_time, 300)
    loop.call_in_later(node, 0.000_1, lambda: done.append(loop.now_us))
    loop.call_in_later(None, 0.000_2, loop.pause, node)
    loop.call_in_later(None, 0.000_9, loop.resume, node)

    loop.run_until_complete(asyncio.sleep(0.001))

    assert done == [900]
