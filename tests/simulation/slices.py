"""Requests of a simulated world are small: here they go in turns all the same, as large ones do.

Their slices end when the node's clock says so, of which some steps take a whole slice (`NodeClock.slow_down_steps`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

AT_ONCE_MAX = 1  # elements of a request that is begun before it goes in turns
NO_LIMIT_MIN = 1_000_000  # a request that must not be interrupted has such a limit


def _range(count: int) -> range:
    return range(count if count >= NO_LIMIT_MIN else AT_ONCE_MAX)


@contextmanager
def all_requests_in_turns() -> Iterator[None]:
    """What a handler does at once (`at_once_or_in_turns`) is AT_ONCE_MAX elements; answers of few elements are encoded in turns too."""
    with (
        patch("broker.loop.turns.range", _range, create=True),
        patch("broker.loop.turns.is_many", lambda lists, limit: True),
    ):
        yield
