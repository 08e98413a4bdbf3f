"""One callback for the end of several things."""

from __future__ import annotations

from collections.abc import Callable


def countdown(count: int, callback: Callable[[], None]) -> Callable[[], None]:
    """A function whose call number `count` calls `callback`; it is called now when there is nothing to wait for."""
    left = count
    if left == 0:
        callback()

    def note_end() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            callback()

    return note_end
