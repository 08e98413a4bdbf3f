"""Server-Sent Events: a text each, and an answer that lasts until the browser leaves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import StreamingResponse


def event(name: str, data: Any) -> str:
    """One event. The data are JSON, so that no line's end in them ends the event."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def stream(events: AsyncIterator[str]) -> StreamingResponse:
    """`events` is closed when the browser leaves."""
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
