"""Awaits blocking calls: they run in a thread, so that the loop is free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


async def in_thread(function: Callable[[], Result], interrupt: Callable[[], object]) -> Result:
    """What `function` returns. If the caller is cancelled, `interrupt` ends the processes that it waits for, so that it need not be
    waited for long; no thread is left behind."""
    future = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        interrupt()
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # seen: it failed because of us
        raise
