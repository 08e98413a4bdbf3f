"""One callback for the end of several things."""

from __future__ import annotations

from collections.abc import Callable


def countdown(count: int, callback: Callable[[], None]) -> Callable[[], None]:
    """Returns a function that calls `callback` when it is called for the `count`-th time. With a count of 0, `callback` is called now."""
    left = count
    if left == 0:
        callback()

    def count_down() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            callback()

    return count_down
