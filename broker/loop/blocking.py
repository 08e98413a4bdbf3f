"""Runs blocking disk calls in the thread pool; their results are delivered on the loop."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol


class BlockingResult(Protocol):
    """The result of a call that runs in a thread: the part of asyncio.Future that is used."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> object:
        """Call `callback` with this object, on the loop, once the call is done."""

    def result(self) -> Any:
        """The value that the call returned. Raises the exception that it raised."""

    def __await__(self) -> Generator[Any, None, Any]:
        """As `result`, for code that awaits it."""


RunBlocking = Callable[..., BlockingResult]
"""`run_blocking(function, *arguments)` runs it off the loop."""
