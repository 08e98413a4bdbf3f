"""How many nodes of a cluster that starts are ready: a line on stderr, on a terminal only, once it takes over a second."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable

SHOWN_AFTER_S = 1.0
POLL_S = 0.1
CELLS = 20
CLEAR = "\r\x1b[K"


@contextlib.asynccontextmanager
async def ready_bar(count: Callable[[], int], total: int) -> AsyncIterator[None]:
    """While the block lasts; the line is cleared at its end."""
    if not sys.stderr.isatty():
        yield
        return
    showing = asyncio.ensure_future(_show(count, total))
    try:
        yield
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)


async def _show(count: Callable[[], int], total: int) -> None:
    await asyncio.sleep(SHOWN_AFTER_S)
    try:
        while True:
            done = count()
            filled = CELLS * done // total
            print(f"{CLEAR}starting {'#' * filled}{'.' * (CELLS - filled)} {done}/{total} nodes", end="", file=sys.stderr, flush=True)
            await asyncio.sleep(POLL_S)
    finally:
        print(CLEAR, end="", file=sys.stderr, flush=True)
