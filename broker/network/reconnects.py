"""Reconnects: how long a connection to another node may take, and how long to wait before the next attempt.

Source: org.apache.kafka.clients.ClusterConnectionStates (reconnect.backoff.ms, socket.connection.setup.timeout.ms).
"""

from __future__ import annotations

BACKOFF_MIN_MS = 50
BACKOFF_MAX_MS = 1_000
BACKOFF_GROWTH = 5, 4
"""A fraction. A peer that was away for a while is found at most a fifth of that time after its return, where Kafka's doubling back-off
takes as long again."""
CONNECT_TIMEOUTS_MS = (10_000, 30_000)
"""The first attempt's and the longest: socket.connection.setup.timeout.ms and socket.connection.setup.timeout.max.ms of Kafka's clients.
Each timeout in a row doubles the time of the next attempt."""
TIMEOUT_DOUBLINGS_MAX = 16


class Reconnects:
    """The times of one connection. `connect_timeouts_ms`: as CONNECT_TIMEOUTS_MS."""

    __slots__ = ("_backoff_ms", "_timeout_max_ms", "_timeout_ms", "_timeouts_count")

    def __init__(self, connect_timeouts_ms: tuple[int, int]) -> None:
        self._timeout_ms, self._timeout_max_ms = connect_timeouts_ms
        self._timeouts_count = 0  # in a row
        self._backoff_ms = 0

    @property
    def connect_timeout_ms(self) -> int:
        """Of the next attempt."""
        return min(self._timeout_ms << self._timeouts_count, self._timeout_max_ms)

    def attempt_ended(self, error: OSError | None) -> None:
        """An attempt to connect succeeded (None) or failed."""
        self._timeouts_count = min(self._timeouts_count + 1, TIMEOUT_DOUBLINGS_MAX) if type(error) is TimeoutError else 0

    def grow_backoff(self) -> int:
        """The connection is lost, or was not made. Returns the milliseconds to wait before the next attempt."""
        numerator, denominator = BACKOFF_GROWTH
        self._backoff_ms = min(max(self._backoff_ms * numerator // denominator, BACKOFF_MIN_MS), BACKOFF_MAX_MS)
        return self._backoff_ms

    def end_backoff(self) -> None:
        """The peer has answered: the next loss begins with the shortest wait."""
        self._backoff_ms = 0
