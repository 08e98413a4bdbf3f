"""Limits log lines that strangers can cause: a flood of refused connections must not fill the disk that the records need.

Each kind of line has a budget for an interval. Lines beyond it are counted, and the count is logged when the interval ends: an operator
reads the first lines in full and then how many followed.
"""

from __future__ import annotations

import logging
from typing import Any

from broker.loop.clock import Clock

LINES_MAX = 10  # for each kind and interval
INTERVAL_MS = 60_000
PARTITION_LINES_MAX = 20  # of what happens to partitions: to thousands at once when a broker dies
PARTITION_LINES_INTERVAL_MS = 10_000
EVENT_LINES_MAX = 60  # of what happens to topics and groups: an operator wants to read it, and one line a second fills no disk


class LimitedLog:
    """Writes to `logger` within the budget. `kind` is one of the program's own fixed words, never a peer's: kinds are kept for ever.

    Without `tells_omitted` lines that were left out are not counted in the log: for a state that is logged repeatedly, not for events.
    """

    __slots__ = ("_clock", "_interval_ms", "_lines_max", "_logger", "_omitted", "_tells_omitted", "_written")

    def __init__(
        self,
        logger: logging.Logger,
        clock: Clock,
        *,
        lines_max: int = LINES_MAX,
        interval_ms: int = INTERVAL_MS,
        tells_omitted: bool = True,
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._lines_max = lines_max
        self._interval_ms = interval_ms
        self._tells_omitted = tells_omitted
        self._written: dict[str, int] = {}  # lines in the interval that runs, by kind; an interval begins with its first line
        self._omitted: dict[str, int] = {}

    def info(self, kind: str, message: str, *arguments: Any) -> None:
        self._log(logging.INFO, kind, message, arguments, None)

    def warning(self, kind: str, message: str, *arguments: Any) -> None:
        self._log(logging.WARNING, kind, message, arguments, None)

    def error(self, kind: str, message: str, *arguments: Any, exc_info: BaseException | None = None) -> None:
        self._log(logging.ERROR, kind, message, arguments, exc_info)

    def omits(self, kind: str) -> bool:
        """Whether a line of `kind` is left out now; if so it is counted, and the caller need not make it. For long lists of events."""
        if self._written.get(kind, 0) < self._lines_max:
            return False
        self._omitted[kind] = self._omitted.get(kind, 0) + 1
        return True

    def _log(self, level: int, kind: str, message: str, arguments: tuple[Any, ...], exc_info: BaseException | None) -> None:
        if not self._logger.isEnabledFor(level) or self.omits(kind):
            return
        written = self._written.get(kind, 0)
        if written == 0:
            self._clock.call_later(self._interval_ms, self._end_interval, level, kind)
        self._written[kind] = written + 1
        self._logger.log(level, message, *arguments, exc_info=exc_info)

    def _end_interval(self, level: int, kind: str) -> None:
        self._written.pop(kind, None)
        omitted = self._omitted.pop(kind, 0)
        if omitted and self._tells_omitted:
            self._logger.log(level, "%s: %d more lines were left out in the last %d s", kind, omitted, self._interval_ms // 1000)
