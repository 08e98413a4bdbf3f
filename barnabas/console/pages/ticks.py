"""A stream of one event for each poll of the cluster: the script asks for the page again then."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
from starlette.requests import Request
from starlette.responses import Response

from barnabas.console.shell import View
from barnabas.console.sse import event, stream

WAIT_S = 1.0
"""Of a thread for a poll; a stream that ends keeps one for that long."""
QUIET_S = 15


async def ticks(request: Request) -> Response:
    view = await anyio.to_thread.run_sync(View, request)
    watcher = view.watcher
    shown = int(view.query.get("polls", "0") or 0) if view.query.get("polls", "0").isdecimal() else 0

    async def events() -> AsyncIterator[str]:
        polls, waited = shown, 0
        while not watcher.is_closed:
            newer = await anyio.to_thread.run_sync(watcher.wait_for_poll, polls, WAIT_S)
            watcher.look()
            if newer > polls:
                polls, waited = newer, 0
                yield event("tick", str(polls))
            else:
                waited += 1
                if waited % QUIET_S == 0:
                    yield ": \n\n"

    return stream(events())
