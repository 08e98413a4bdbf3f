"""SystemClock on a real loop."""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar, copy_context

import uvloop

from broker.loop.clock import SystemClock


def test_timers_share_one_context_instead_of_copying_one_each() -> None:
    """A Context that came about among the objects of a large request keeps a megabyte of Python's allocator for as long as its timer."""
    late = ContextVar("late", default=False)
    seen: list[Context] = []

    async def test() -> None:
        clock = SystemClock(asyncio.get_running_loop())
        late.set(True)
        fired = asyncio.Event()
        clock.call_later(0, lambda: (seen.append(copy_context()), fired.set()))
        await fired.wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())

    assert [late in context for context in seen] == [False]
